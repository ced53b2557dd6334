//! Layers of networks that people run.

/// A convolution: input channels, image size, output channels, kernel, stride, groups.
pub struct Layer {
    pub name: &'static str,
    pub inputs: usize,
    pub size: usize,
    pub outputs: usize,
    pub kernel: usize,
    pub stride: usize,
    pub groups: usize,
}

const fn layer(name: &'static str, [inputs, size, outputs, kernel, stride, groups]: [usize; 6]) -> Layer {
    Layer { name, inputs, size, outputs, kernel, stride, groups }
}

/// The different convolutions of ResNet-50 (He et al. 2015) at 224×224.
pub const RESNET50: &[Layer] = &[
    layer("conv1", [3, 224, 64, 7, 2, 1]),
    layer("conv2 reduce first", [64, 56, 64, 1, 1, 1]),
    layer("conv2 3×3", [64, 56, 64, 3, 1, 1]),
    layer("conv2 expand", [64, 56, 256, 1, 1, 1]),
    layer("conv2 reduce", [256, 56, 64, 1, 1, 1]),
    layer("conv3 reduce first", [256, 56, 128, 1, 1, 1]),
    layer("conv3 3×3 first", [128, 56, 128, 3, 2, 1]),
    layer("conv3 shortcut", [256, 56, 512, 1, 2, 1]),
    layer("conv3 3×3", [128, 28, 128, 3, 1, 1]),
    layer("conv3 expand", [128, 28, 512, 1, 1, 1]),
    layer("conv3 reduce", [512, 28, 128, 1, 1, 1]),
    layer("conv4 reduce first", [512, 28, 256, 1, 1, 1]),
    layer("conv4 3×3 first", [256, 28, 256, 3, 2, 1]),
    layer("conv4 shortcut", [512, 28, 1024, 1, 2, 1]),
    layer("conv4 3×3", [256, 14, 256, 3, 1, 1]),
    layer("conv4 expand", [256, 14, 1024, 1, 1, 1]),
    layer("conv4 reduce", [1024, 14, 256, 1, 1, 1]),
    layer("conv5 reduce first", [1024, 14, 512, 1, 1, 1]),
    layer("conv5 3×3 first", [512, 14, 512, 3, 2, 1]),
    layer("conv5 shortcut", [1024, 14, 2048, 1, 2, 1]),
    layer("conv5 3×3", [512, 7, 512, 3, 1, 1]),
    layer("conv5 expand", [512, 7, 2048, 1, 1, 1]),
    layer("conv5 reduce", [2048, 7, 512, 1, 1, 1]),
];

/// The different convolutions of `MobileNetV2` (Sandler et al. 2018) at 224×224.
pub const MOBILENET_V2: &[Layer] = &[
    layer("first", [3, 224, 32, 3, 2, 1]),
    layer("block 1 depthwise", [32, 112, 32, 3, 1, 32]),
    layer("block 1 project", [32, 112, 16, 1, 1, 1]),
    layer("block 2 expand", [16, 112, 96, 1, 1, 1]),
    layer("block 2 depthwise", [96, 112, 96, 3, 2, 96]),
    layer("block 2 project", [96, 56, 24, 1, 1, 1]),
    layer("block 3 expand", [24, 56, 144, 1, 1, 1]),
    layer("block 3 depthwise", [144, 56, 144, 3, 1, 144]),
    layer("block 3 project", [144, 56, 24, 1, 1, 1]),
    layer("block 4 depthwise", [144, 56, 144, 3, 2, 144]),
    layer("block 4 project", [144, 28, 32, 1, 1, 1]),
    layer("block 5 expand", [32, 28, 192, 1, 1, 1]),
    layer("block 5 depthwise", [192, 28, 192, 3, 1, 192]),
    layer("block 5 project", [192, 28, 32, 1, 1, 1]),
    layer("block 7 depthwise", [192, 28, 192, 3, 2, 192]),
    layer("block 7 project", [192, 14, 64, 1, 1, 1]),
    layer("block 8 expand", [64, 14, 384, 1, 1, 1]),
    layer("block 8 depthwise", [384, 14, 384, 3, 1, 384]),
    layer("block 8 project", [384, 14, 64, 1, 1, 1]),
    layer("block 11 project", [384, 14, 96, 1, 1, 1]),
    layer("block 12 expand", [96, 14, 576, 1, 1, 1]),
    layer("block 12 depthwise", [576, 14, 576, 3, 1, 576]),
    layer("block 12 project", [576, 14, 96, 1, 1, 1]),
    layer("block 14 depthwise", [576, 14, 576, 3, 2, 576]),
    layer("block 14 project", [576, 7, 160, 1, 1, 1]),
    layer("block 15 expand", [160, 7, 960, 1, 1, 1]),
    layer("block 15 depthwise", [960, 7, 960, 3, 1, 960]),
    layer("block 15 project", [960, 7, 160, 1, 1, 1]),
    layer("block 17 project", [960, 7, 320, 1, 1, 1]),
    layer("last", [320, 7, 1280, 1, 1, 1]),
];

/// An attention: heads of queries and of keys, queries, keys, dim.
pub struct Heads {
    pub name: &'static str,
    pub queries: usize,
    pub keys: usize,
    pub lengths: [usize; 2],
    pub dim: usize,
    pub causal: bool,
}

/// BERT-base (Devlin et al. 2018), a Llama-style block that reads a prompt and then a token, and Whisper's decoder (Radford et al.
/// 2022) on itself and on a tenth of the sound.
pub const ATTENTIONS: &[Heads] = &[
    Heads { name: "BERT-base", queries: 12, keys: 12, lengths: [128, 128], dim: 64, causal: false },
    Heads { name: "Llama prompt", queries: 32, keys: 8, lengths: [48, 48], dim: 128, causal: true },
    Heads { name: "Llama token", queries: 32, keys: 8, lengths: [1, 300], dim: 128, causal: true },
    Heads { name: "Whisper decoder", queries: 6, keys: 6, lengths: [40, 40], dim: 64, causal: true },
    Heads { name: "Whisper on sound", queries: 6, keys: 6, lengths: [40, 150], dim: 64, causal: false },
];

/// A product with weights: rows are tokens.
pub struct Linear {
    pub name: &'static str,
    pub tokens: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub bias: bool,
    /// Whether gelu follows.
    pub gelu: bool,
}

const fn linear(name: &'static str, [tokens, inputs, outputs]: [usize; 3], bias: bool, gelu: bool) -> Linear {
    Linear { name, tokens, inputs, outputs, bias, gelu }
}

/// The products of BERT-base on a sentence, and of a Llama-style block (Touvron et al. 2023) at a quarter of its widths, for a
/// prompt and for one token.
pub const LINEARS: &[Linear] = &[
    linear("BERT query, key, value", [24, 768, 768], true, false),
    linear("BERT intermediate", [24, 768, 3072], true, true),
    linear("BERT output", [24, 3072, 768], true, false),
    linear("BERT pooler", [1, 768, 768], true, false),
    linear("Llama query prompt", [16, 1024, 1024], false, false),
    linear("Llama keys of shared heads", [16, 1024, 256], false, false),
    linear("Llama gate and up prompt", [16, 1024, 2752], false, false),
    linear("Llama down prompt", [16, 2752, 1024], false, false),
    linear("Llama gate and up token", [1, 1024, 2752], false, false),
    linear("Llama down token", [1, 2752, 1024], false, false),
];

/// The norms of the same blocks: tokens, width, and whether the mean is taken off.
pub const NORMS: &[(&str, [usize; 2], bool)] = &[
    ("BERT layer norm", [128, 768], true),
    ("Llama rms norm prompt", [48, 4096], false),
    ("Llama rms norm token", [1, 4096], false),
];
