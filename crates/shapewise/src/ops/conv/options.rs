//! What a user says about a convolution beyond its operands.

use arrayvec::ArrayVec;

use crate::error::{Error, Result};
use crate::ops::Activation;
use crate::tensor::TensorView;

/// Where the channels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConvLayout {
    /// N×C×…: a plane for each channel.
    #[default]
    ChannelsFirst,
    /// N×…×C: all channels of a pixel side by side.
    ChannelsLast,
}

/// Zeros around the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Padding {
    /// None: the kernel stays inside the input.
    #[default]
    Valid,
    /// As many as make the output the input's size divided by the stride, rounded up; an odd one comes after.
    Same,
    /// So many before and after, for all axes if one pair is given.
    Explicit(ArrayVec<(usize, usize), MOST>),
}

/// One more than there are axes, so that too long a list stays too long.
const MOST: usize = 4;

/// Stride, padding, dilation, groups, layout, bias and activation of a convolution.
///
/// ```
/// use shapewise::ops::{Activation, conv::ConvOptions};
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[1, 1, 2, 2])?;
/// let w = Tensor::full(1.0f32, &[1, 1, 3, 3])?;
/// let options = ConvOptions::new().padding(1).activation(Activation::Relu);
/// assert_eq!(rt.conv2d(&x, &w, &options)?.to_vec::<f32>()?, [10.0; 4]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConvOptions<'a> {
    stride: ArrayVec<usize, MOST>,
    dilation: ArrayVec<usize, MOST>,
    output_padding: ArrayVec<usize, MOST>,
    pub(super) padding: Padding,
    groups: Option<usize>,
    pub(in crate::ops) layout: ConvLayout,
    pub(in crate::ops) bias: Option<TensorView<'a>>,
    pub(in crate::ops) activation: Activation,
}

impl<'a> ConvOptions<'a> {
    /// Stride and dilation 1, no padding, one group, channels first.
    pub fn new() -> Self {
        Self::default()
    }

    /// Distance of neighbouring outputs in the input along every axis.
    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        self.strides(&[stride])
    }

    /// The same for each axis.
    #[must_use]
    pub fn strides(mut self, strides: &[usize]) -> Self {
        self.stride = strides.iter().copied().take(MOST).collect();
        self
    }

    /// Zeros before and after every axis.
    #[must_use]
    pub fn padding(self, padding: usize) -> Self {
        self.paddings(&[(padding, padding)])
    }

    /// Zeros before and after each axis.
    #[must_use]
    pub fn paddings(mut self, paddings: &[(usize, usize)]) -> Self {
        self.padding = Padding::Explicit(paddings.iter().copied().take(MOST).collect());
        self
    }

    /// As many zeros as make the output the input's size divided by the stride, rounded up.
    #[must_use]
    pub fn same(mut self) -> Self {
        self.padding = Padding::Same;
        self
    }

    /// No zeros: the kernel stays inside the input.
    #[must_use]
    pub fn valid(mut self) -> Self {
        self.padding = Padding::Valid;
        self
    }

    /// Distance of neighbouring weights along every axis.
    #[must_use]
    pub fn dilation(self, dilation: usize) -> Self {
        self.dilations(&[dilation])
    }

    /// The same for each axis.
    #[must_use]
    pub fn dilations(mut self, dilations: &[usize]) -> Self {
        self.dilation = dilations.iter().copied().take(MOST).collect();
        self
    }

    /// Parts that the channels fall into; each sees only its own. As many as channels is a depthwise convolution.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Where the channels of input and output are; weights are always O×C/groups×….
    #[must_use]
    pub fn layout(mut self, layout: ConvLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Channels last: N×…×C.
    #[must_use]
    pub fn channels_last(self) -> Self {
        self.layout(ConvLayout::ChannelsLast)
    }

    /// A number for every output channel, added to the result.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<TensorView<'a>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// A function applied to the sum of result and bias.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Transposed convolution: outputs added after the last along every axis; less than the stride or the dilation.
    #[must_use]
    pub fn output_padding(self, output_padding: usize) -> Self {
        self.output_paddings(&[output_padding])
    }

    /// The same for each axis.
    #[must_use]
    pub fn output_paddings(mut self, output_paddings: &[usize]) -> Self {
        self.output_padding = output_paddings.iter().copied().take(MOST).collect();
        self
    }

    /// The numbers for each of `axes` axes, in front of them ones (or zeros) for the missing ones of three.
    pub(super) fn resolve(&self, operation: &'static str, axes: usize) -> Result<Resolved> {
        let invalid = |reason: String| Error::InvalidArgument { operation, reason };
        let stride = each(operation, "strides", &self.stride, axes, 1)?;
        let dilation = each(operation, "dilations", &self.dilation, axes, 1)?;
        let output_padding = each(operation, "output paddings", &self.output_padding, axes, 0)?;
        let padding = match &self.padding {
            Padding::Explicit(list) => Some(each(operation, "paddings", list, axes, (0, 0))?),
            Padding::Valid => Some([(0, 0); 3]),
            Padding::Same => None,
        };
        for (what, values) in [("stride", stride), ("dilation", dilation)] {
            if values.contains(&0) {
                return Err(invalid(format!("a {what} of 0 never moves on; give 1 or more")));
            }
        }
        let groups = self.groups.unwrap_or(1);
        if groups == 0 {
            return Err(invalid("0 groups have no channels; give 1 or more".into()));
        }
        Ok(Resolved { stride, dilation, output_padding, padding, groups })
    }
}

/// Options for three axes.
pub(super) struct Resolved {
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub output_padding: [usize; 3],
    /// None for [`Padding::Same`].
    pub padding: Option<[(usize, usize); 3]>,
    pub groups: usize,
}

fn each<T: Copy>(operation: &'static str, what: &str, list: &[T], axes: usize, missing: T) -> Result<[T; 3]> {
    let mut values = [missing; 3];
    match list {
        [] => {}
        &[all] => values[3 - axes..].fill(all),
        list if list.len() == axes => values[3 - axes..].copy_from_slice(list),
        list => {
            let many = if list.len() == MOST { "more than three".to_owned() } else { list.len().to_string() };
            let reason = format!("{many} {what} for {axes} axes; give one for all or one for each");
            return Err(Error::InvalidArgument { operation, reason });
        }
    }
    Ok(values)
}
