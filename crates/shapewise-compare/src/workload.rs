//! The list of workloads: what is timed, read from JSON with errors that name the entry and its line.

use crate::rnn::Rnn;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;

/// The list that is run when no file is given.
pub const DEFAULT_LIST: &str = include_str!("../workloads.json");

/// Weights of 4 bits that share a scale.
pub const WEIGHT_BLOCK: usize = 32;

/// One named piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The name, for example `matmul/128`; the key that merges records.
    pub name: String,
    /// What is computed.
    pub task: Task,
}

/// What is computed, with its sizes. All data is f32, row major and contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A square convolution of images, channels first.
    Conv(Conv),
    /// C[m,n] = A[m,k] · B[k,n], `batch` times; with `transposed`, B is stored as [n,k].
    Matmul { batch: usize, m: usize, k: usize, n: usize, transposed: bool },
    /// One pass over vectors of `n` elements.
    Elementwise { op: Pointwise, n: usize },
    /// Forward Fourier transforms of `batch` lines of `n` points, or of a plane of them.
    Fft { op: Transform, n: usize, batch: usize },
    /// A sparse matrix of n × n with as many random entries in each row, times a dense one of `cols` columns.
    Sparse { n: usize, per_row: usize, cols: usize },
    /// A sum over a matrix.
    Sum { over: Over, rows: usize, cols: usize },
    /// Softmax along the rows.
    Softmax { rows: usize, cols: usize },
    /// Layer norm along the rows, with weight and bias.
    LayerNorm { rows: usize, cols: usize },
    /// Batch norm as in inference, with given statistics; `plane` is height × width.
    BatchNorm { batch: usize, channels: usize, plane: usize },
    /// Scaled dot-product attention of `heads` heads, as many queries as keys.
    Attention { heads: usize, length: usize, dim: usize, causal: bool },
    /// One layer of a recurrent network.
    Rnn(Rnn),
    /// A matrix of n × n written with its axes exchanged.
    Transpose { n: usize },
    /// `picks` random rows of a table.
    Gather { rows: usize, cols: usize, picks: usize },
    /// C[m,n] = A[m,k] · B[k,n] of unsigned and signed bytes, summed in i32.
    IntegerMatmul { m: usize, k: usize, n: usize },
    /// C[m,n] = A[m,k] · Bᵀ of numbers and weights of 4 bits, stored as [n,k] with a scale for each 32.
    WeightMatmul { m: usize, k: usize, n: usize },
    /// n numbers as i8 with a scale and a zero point.
    Quantize { n: usize },
    /// n of i8 back to numbers.
    Dequantize { n: usize },
    /// n numbers in rising order.
    Sort { n: usize },
    /// The k largest of n numbers, falling.
    TopK { n: usize, k: usize },
}

/// Sizes of a convolution of `batch` images of `inputs` planes with a kernel of `kernel` × `kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    pub batch: usize,
    pub inputs: usize,
    pub height: usize,
    pub width: usize,
    pub outputs: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub groups: usize,
}

impl Conv {
    /// Sizes of input, weights and output.
    pub fn shapes(&self) -> [[usize; 4]; 3] {
        let out = |size: usize| (size + 2 * self.padding - self.kernel) / self.stride + 1;
        [
            [self.batch, self.inputs, self.height, self.width],
            [self.outputs, self.inputs / self.groups, self.kernel, self.kernel],
            [self.batch, self.outputs, out(self.height), out(self.width)],
        ]
    }
}

/// The element-wise operations of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointwise {
    /// a + b
    Add,
    /// a · b
    Mul,
    /// max(a, 0)
    Relu,
    /// max(a + b, 0)
    AddRelu,
}

/// The kinds of transforms of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Complex lines.
    Complex,
    /// A complex plane.
    Plane,
    /// Real lines, to half a spectrum.
    Real,
}

/// What a sum runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Every element.
    All,
    /// The elements of each row.
    Rows,
    /// The elements of each column.
    Columns,
}

impl Task {
    /// The group under which results are summed up.
    pub fn group(&self) -> Group {
        match self {
            Self::Conv(conv) if conv.groups > 1 && conv.groups == conv.inputs => Group::Depthwise,
            Self::Conv(_) => Group::Conv,
            Self::Matmul { .. } => Group::Matmul,
            Self::Elementwise { .. } => Group::Elementwise,
            Self::Attention { .. } => Group::Attention,
            Self::Rnn(rnn) if rnn.lstm => Group::Lstm,
            Self::Rnn(_) => Group::Gru,
            Self::Transpose { .. } | Self::Gather { .. } | Self::Sort { .. } | Self::TopK { .. } => {
                Group::Moving
            }
            Self::Fft { .. } => Group::Fft,
            Self::Sparse { cols: 1, .. } => Group::SparseVector,
            Self::Sparse { .. } => Group::SparseMatrix,
            Self::IntegerMatmul { .. } => Group::IntegerMatmul,
            Self::WeightMatmul { .. } => Group::WeightMatmul,
            Self::Quantize { .. } | Self::Dequantize { .. } => Group::Quantize,
            _ => Group::ReduceAndNorm,
        }
    }

    /// Number of elements of the answer.
    pub fn output_len(&self) -> usize {
        match *self {
            Self::Conv(conv) => conv.shapes()[2].iter().product(),
            Self::Matmul { batch, m, n, .. } => batch * m * n,
            Self::Elementwise { n, .. } => n,
            Self::Fft { op: Transform::Real, n, batch } => 2 * (n / 2 + 1) * batch,
            Self::Fft { n, batch, .. } => 2 * n * batch,
            Self::Sum { over: Over::All, .. } => 1,
            Self::Sum { over: Over::Rows, rows, .. } => rows,
            Self::Sum { over: Over::Columns, cols, .. } => cols,
            Self::Softmax { rows, cols } | Self::LayerNorm { rows, cols } => rows * cols,
            Self::BatchNorm { batch, channels, plane } => batch * channels * plane,
            Self::Attention { heads, length, dim, .. } => heads * length * dim,
            Self::Rnn(rnn) => rnn.steps * rnn.batch * rnn.hidden,
            Self::Transpose { n } => n * n,
            Self::Sparse { n, cols, .. } => n * cols,
            Self::Gather { cols, picks, .. } => picks * cols,
            Self::IntegerMatmul { m, n, .. } | Self::WeightMatmul { m, n, .. } => m * n,
            Self::Sort { n } | Self::Quantize { n } | Self::Dequantize { n } => n,
            Self::TopK { k, .. } => k,
        }
    }
}

/// Elements that all tensors of a task may have together: 8 GiB of f32.
const MOST_ELEMENTS: u128 = 1 << 31;

impl Task {
    /// Number of elements of all tensors together.
    fn elements(&self) -> u128 {
        let product = |sizes: &[usize]| sizes.iter().map(|&s| s as u128).product::<u128>();
        match *self {
            Self::Conv(conv) => conv.shapes().iter().map(|shape| product(shape)).sum(),
            Self::Matmul { batch, m, k, n, .. } => {
                product(&[batch, m, k]) + product(&[batch, k, n]) + product(&[batch, m, n])
            }
            Self::Elementwise { n, .. } => product(&[3, n]),
            Self::Fft { n, batch, .. } => product(&[4, n, batch]),
            Self::Sum { rows, cols, .. } | Self::Softmax { rows, cols } | Self::LayerNorm { rows, cols } => {
                product(&[2, rows, cols])
            }
            Self::BatchNorm { batch, channels, plane } => product(&[2, batch, channels, plane]),
            // A peer may hold all scores, twice.
            Self::Attention { heads, length, dim, .. } => {
                product(&[4, heads, length, dim]) + product(&[2, heads, length, length])
            }
            // A peer may hold all sums.
            Self::Rnn(Rnn { steps, batch, input, hidden, .. }) => {
                product(&[steps, batch, input + 5 * hidden]) + product(&[4, hidden, input + hidden + 2])
            }
            Self::Transpose { n } => product(&[2, n, n]),
            Self::Sparse { n, per_row, cols } => product(&[2, n, cols]) + product(&[3, n, per_row]),
            Self::Gather { rows, cols, picks } => product(&[rows, cols]) + product(&[picks, cols + 1]),
            Self::IntegerMatmul { m, k, n } | Self::WeightMatmul { m, k, n } => {
                product(&[m, k]) + product(&[k, n]) + product(&[m, n])
            }
            Self::Quantize { n } | Self::Dequantize { n } => product(&[3, n]),
            Self::Sort { n } | Self::TopK { n, .. } => product(&[3, n]),
        }
    }
}

/// A family of workloads with one bar to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Convolutions over channels.
    Conv,
    /// Convolutions of single channels.
    Depthwise,
    /// Matrix products.
    Matmul,
    /// Element-wise operations.
    Elementwise,
    /// Transpositions, look-ups and sorts.
    Moving,
    /// Fourier transforms.
    Fft,
    /// Sparse matrices times vectors.
    SparseVector,
    /// Sparse matrices times matrices.
    SparseMatrix,
    /// Sums, softmax and norms.
    ReduceAndNorm,
    /// Attention.
    Attention,
    /// Long short-term memories.
    Lstm,
    /// Gated recurrent units.
    Gru,
    /// Products of bytes.
    IntegerMatmul,
    /// Products of numbers and weights of 4 bits.
    WeightMatmul,
    /// Conversions to bytes and back.
    Quantize,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conv => "conv",
            Self::Depthwise => "depthwise conv",
            Self::Matmul => "matmul",
            Self::Elementwise => "elementwise",
            Self::Moving => "moving data",
            Self::Fft => "fft",
            Self::SparseVector => "sparse × vector",
            Self::SparseMatrix => "sparse × matrix",
            Self::ReduceAndNorm => "reduce, softmax, norm",
            Self::Attention => "attention",
            Self::Lstm => "lstm",
            Self::Gru => "gru",
            Self::IntegerMatmul => "integer matmul",
            Self::WeightMatmul => "int4 weights",
            Self::Quantize => "quantise",
        })
    }
}

/// Reads a list of workloads; an error names the entry and the line where it starts.
pub fn parse(text: &str) -> Result<Vec<Workload>> {
    let entries: Vec<&RawValue> =
        serde_json::from_str(text).context("the workload list must be a JSON array of objects")?;
    let mut list = Vec::new();
    let mut names = HashSet::new();
    for (index, raw) in entries.iter().enumerate() {
        let offset = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        let line = text[..offset].matches('\n').count() + 1;
        let mut place = format!("entry {} (line {line})", index + 1);
        let fields: Map<String, Value> =
            serde_json::from_str(raw.get()).map_err(|_| anyhow!("{place}: must be an object"))?;
        let entry = Entry(&fields);
        let name = entry.text("name").with_context(|| place.clone())?;
        place = format!("entry {} (line {line}) `{name}`", index + 1);
        if !names.insert(name.to_owned()) {
            bail!("{place}: the name appears twice");
        }
        let task = entry.task().with_context(|| place.clone())?;
        if task.elements() > MOST_ELEMENTS {
            bail!("{place}: needs more than 8 GiB");
        }
        list.push(Workload { name: name.to_owned(), task });
    }
    Ok(list)
}

/// One JSON object with typed access to its fields.
struct Entry<'a>(&'a Map<String, Value>);

impl<'a> Entry<'a> {
    fn text(&self, key: &str) -> Result<&'a str> {
        match self.0.get(key) {
            Some(Value::String(s)) if !s.is_empty() => Ok(s),
            Some(other) => bail!("`{key}` must be a non-empty string, not {other}"),
            None => bail!("`{key}` is missing"),
        }
    }

    fn size(&self, key: &str) -> Result<usize> {
        let value = self.0.get(key).with_context(|| format!("`{key}` is missing"))?;
        value
            .as_u64()
            .filter(|&v| v > 0 && v < 1 << 40)
            .map(|v| v as usize)
            .with_context(|| format!("`{key}` must be a positive whole number, not {value}"))
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        if self.0.contains_key(key) { self.size(key) } else { Ok(default) }
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.0.get(key) {
            None => Ok(false),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => bail!("`{key}` must be true or false, not {other}"),
        }
    }

    fn task(&self) -> Result<Task> {
        let kind = self.text("kind")?;
        let task = match kind {
            "conv" => Task::Conv(self.conv()?),
            "matmul" => Task::Matmul {
                batch: self.size_or("batch", 1)?,
                m: self.size("m")?,
                k: self.size("k")?,
                n: self.size("n")?,
                transposed: self.flag("tb")?,
            },
            "elementwise" => Task::Elementwise { op: self.pointwise()?, n: self.size("n")? },
            "fft" => Task::Fft {
                op: match self.text("op")? {
                    "c2c" => Transform::Complex,
                    "2d" => Transform::Plane,
                    "r2c" => Transform::Real,
                    other => bail!("unknown transform `{other}`: expected c2c, 2d or r2c"),
                },
                n: self.size("n")?,
                batch: self.size_or("batch", 1)?,
            },
            "reduce" => Task::Sum { over: self.over()?, rows: self.size("rows")?, cols: self.size("cols")? },
            "softmax" => Task::Softmax { rows: self.size("rows")?, cols: self.size("cols")? },
            "layernorm" => Task::LayerNorm { rows: self.size("rows")?, cols: self.size("cols")? },
            "batchnorm" => Task::BatchNorm {
                batch: self.size("b")?,
                channels: self.size("c")?,
                plane: self.size("h")?.checked_mul(self.size("w")?).context("`h` times `w` overflows")?,
            },
            "attention" => Task::Attention {
                heads: self.size("heads")?,
                length: self.size("length")?,
                dim: self.size("dim")?,
                causal: self.flag("causal")?,
            },
            "rnn" => Task::Rnn(self.rnn()?),
            "int8mm" => Task::IntegerMatmul { m: self.size("m")?, k: self.size("k")?, n: self.size("n")? },
            "int4mm" => {
                let (m, k, n) = (self.size("m")?, self.size("k")?, self.size("n")?);
                if !k.is_multiple_of(WEIGHT_BLOCK) {
                    bail!("`k` must be a multiple of {WEIGHT_BLOCK}, not {k}");
                }
                Task::WeightMatmul { m, k, n }
            }
            "quant" => match self.text("op")? {
                "quantize" => Task::Quantize { n: self.size("n")? },
                "dequantize" => Task::Dequantize { n: self.size("n")? },
                other => bail!("unknown conversion `{other}`: expected quantize or dequantize"),
            },
            "transpose" => Task::Transpose { n: self.size("n")? },
            "gather" => Task::Gather {
                rows: self.size("rows")?,
                cols: self.size("cols")?,
                picks: self.size("picks")?,
            },
            "sort" => Task::Sort { n: self.size("n")? },
            "sparse" => {
                let (n, per_row, cols) = (self.size("n")?, self.size("nnz_row")?, self.size_or("cols", 1)?);
                if per_row > n || n * per_row > i32::MAX as usize {
                    bail!("`nnz_row` must be at most `n`, and all entries at most {}", i32::MAX);
                }
                Task::Sparse { n, per_row, cols }
            }
            "topk" => {
                let (n, k) = (self.size("n")?, self.size("k")?);
                if k > n {
                    bail!("`k` must be at most `n`, not {k}");
                }
                Task::TopK { n, k }
            }
            other => bail!(
                "unknown kind `{other}`: expected conv, matmul, elementwise, fft, reduce, softmax, layernorm, batchnorm, \
                 attention, rnn, transpose, gather, int8mm, int4mm, quant, sparse, sort or topk"
            ),
        };
        Ok(task)
    }

    fn rnn(&self) -> Result<Rnn> {
        Ok(Rnn {
            lstm: match self.text("op")? {
                "lstm" => true,
                "gru" => false,
                other => bail!("unknown recurrent cell `{other}`: expected lstm or gru"),
            },
            steps: self.size("seq")?,
            batch: self.size("b")?,
            input: self.size("in")?,
            hidden: self.size("hidden")?,
        })
    }

    fn conv(&self) -> Result<Conv> {
        let padding = self.0.get("pad").and_then(Value::as_u64).context("`pad` must be a whole number")?;
        let conv = Conv {
            batch: self.size("b")?,
            inputs: self.size("cin")?,
            height: self.size("h")?,
            width: self.size("w")?,
            outputs: self.size("cout")?,
            kernel: self.size("kh")?,
            stride: self.size("stride")?,
            padding: usize::try_from(padding).ok().filter(|&p| p < 1 << 20).context("`pad` is too large")?,
            groups: self.size("groups")?,
        };
        if !conv.inputs.is_multiple_of(conv.groups) || !conv.outputs.is_multiple_of(conv.groups) {
            bail!("`cin` and `cout` must be multiples of `groups`");
        }
        if conv.kernel > conv.height.min(conv.width) + 2 * conv.padding {
            bail!("`kh` is larger than the padded image");
        }
        Ok(conv)
    }

    fn pointwise(&self) -> Result<Pointwise> {
        Ok(match self.text("op")? {
            "add" => Pointwise::Add,
            "mul" => Pointwise::Mul,
            "relu" => Pointwise::Relu,
            "add_relu" => Pointwise::AddRelu,
            other => bail!("unknown element-wise op `{other}`: expected add, mul, relu or add_relu"),
        })
    }

    fn over(&self) -> Result<Over> {
        Ok(match self.text("op")? {
            "all" => Over::All,
            "row" => Over::Rows,
            "col" => Over::Columns,
            other => bail!("unknown reduction `{other}`: expected all, row or col"),
        })
    }
}

/// Whether a workload's name contains one of the comma-separated parts; an empty filter keeps all.
pub fn matches(name: &str, filter: &str) -> bool {
    filter.split(',').any(|part| name.contains(part.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn default_list_parses() {
        let list = parse(DEFAULT_LIST).unwrap();
        assert_eq!(list.len(), 70);
    }

    #[test]
    fn reads_every_field() {
        let list = parse(
            r#"[{"name":"a","kind":"matmul","batch":3,"m":1,"k":2,"n":5,"tb":true},
                {"name":"b","kind":"reduce","op":"col","rows":2,"cols":4}]"#,
        )
        .unwrap();
        assert_eq!(list[0].task, Task::Matmul { batch: 3, m: 1, k: 2, n: 5, transposed: true });
        assert_eq!(list[1].task.output_len(), 4);
    }

    #[test]
    fn errors_name_the_place() {
        assert!(message("[{\"name\":\"a\",\n\"kind\"}]").contains("line 2"));
        assert_eq!(message("[\n\n{\"kind\":\"matmul\"}]"), "entry 1 (line 3): `name` is missing");
        assert!(message("[3]").contains("entry 1 (line 1): must be an object"));
        assert!(
            message("[{\"name\":\"x\",\"kind\":\"matmull\"}]")
                .contains("entry 1 (line 1) `x`: unknown kind `matmull`")
        );
        assert!(
            message("[{\"name\":\"x\",\"kind\":\"softmax\",\"rows\":0,\"cols\":1}]")
                .contains("`rows` must be a positive")
        );
        assert!(
            message("[{\"name\":\"x\",\"kind\":\"softmax\",\"rows\":99999999,\"cols\":99999999}]")
                .contains("more than 8 GiB")
        );
        let twice = "[{\"name\":\"x\",\"kind\":\"rnn\"},\n{\"name\":\"x\",\"kind\":\"rnn\"}]";
        assert_eq!(message(twice), "entry 2 (line 2) `x`: the name appears twice");
    }

    #[test]
    fn filter_takes_parts() {
        assert!(matches("matmul/16", ""));
        assert!(matches("matmul/16", "sum, matmul"));
        assert!(!matches("matmul/16", "sum,add"));
    }
}
