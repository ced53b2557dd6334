//! Tensors: element types, layouts, owned tensors, borrowed views.

mod axes;
mod dtype;
mod interop;
mod layout;
mod owned;
mod view;
mod word;

pub use axes::{Axes, MAX_RANK, Shape, Strides};
pub use dtype::{DType, Element};
pub use layout::Layout;
pub(crate) use layout::{count, in_order};
pub use owned::Tensor;
pub(crate) use view::Peeked;
pub use view::{Output, TensorView, TensorViewMut};
pub(crate) use word::{Form, SIZES, Word, header, is_aligned};
