//! Minimax polynomials and split constants, lowest power first. Fitted with an exchange algorithm in 50 digits.
use crate::backends::cpu::simd::Float;

/// The constants that the functions need for one width.
pub trait Coefficients: Float {
    /// ln 2 with enough trailing zeros that a multiple by any exponent is exact, and the rest.
    const LN2: [Self; 2];
    /// (eˣ − 1 − x) / x² on ±ln 2 / 2.
    const EXP: &'static [Self];
    /// Below this eˣ is not a normal number, and above the other it overflows.
    const EXP_NORMAL: [Self; 2];
    /// Below this eˣ is zero, and above the other it is infinite, with room to spare.
    const EXP_ANY: [Self; 2];
    /// (2 artanh s − 2 s) / s³ as a polynomial in s² for s up to (√2 − 1) / (√2 + 1).
    const LOG: &'static [Self];
    /// The same without its first term, ⅔, and divided by s², for the logarithm in two numbers.
    const POW_LOG: &'static [Self];
    /// ⅔ as a sum.
    const TWO_THIRDS: [Self; 2];
    /// π / 2 in four parts, of which the first three leave room for an exact multiple.
    const HALF_PI: [Self; 4];
    /// Up to here the four parts reduce an argument exactly enough.
    const TRIG_LIMIT: Self;
    /// (sin x / x − 1) / x² as a polynomial in x² on ±π / 4.
    const SIN: &'static [Self];
    /// (cos x − 1 + x² / 2) / x⁴ as a polynomial in x² on ±π / 4.
    const COS: &'static [Self];
    /// erf x / x as a polynomial in x² up to 1.
    const ERF_SMALL: &'static [Self];
    /// ln erfc x as a polynomial in x − `ERF_CENTRE` from 1 to `ERF_ONE`.
    const ERF_LARGE: &'static [Self];
    /// The centre of `ERF_LARGE`.
    const ERF_CENTRE: Self;
    /// From here on erf rounds to one.
    const ERF_ONE: Self;
    /// From here on tanh rounds to one.
    const TANH_ONE: Self;
}

/// Scalar functions for the rare lanes that the vector code leaves out.
pub trait Scalar: Coefficients {
    /// sin x
    #[must_use]
    fn sin(self) -> Self;
    /// cos x
    #[must_use]
    fn cos(self) -> Self;
    /// xʸ
    #[must_use]
    fn pow(self, y: Self) -> Self;
}

macro_rules! scalar {
    ($t:ident) => {
        impl Scalar for $t {
            fn sin(self) -> Self {
                self.sin()
            }
            fn cos(self) -> Self {
                self.cos()
            }
            fn pow(self, y: Self) -> Self {
                self.powf(y)
            }
        }
    };
}
scalar!(f32);
scalar!(f64);

#[allow(clippy::excessive_precision, clippy::unreadable_literal)] // fitted numbers are printed, not typed
impl Coefficients for f32 {
    const LN2: [f32; 2] = [0.693145751953125, 1.428606765330187e-06];
    const EXP: &'static [f32] = &[0.49999994, 0.166665196, 0.0416683145, 0.00836891495, 0.00138213648];
    const EXP_NORMAL: [f32; 2] = [-87.33654, 88.72283];
    const EXP_ANY: [f32; 2] = [-104.5, 89.5];
    const LOG: &'static [f32] = &[0.666667759, 0.399774969, 0.298730671];
    const POW_LOG: &'static [f32] = &[0.400001526, 0.285470843, 0.234198213];
    const TWO_THIRDS: [f32; 2] = [0.6666666865348816, -1.9868215517249155e-08];
    const HALF_PI: [f32; 4] =
        [1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12];
    const TRIG_LIMIT: f32 = 6000.0;
    const SIN: &'static [f32] = &[-0.166666552, 0.00833217334, -0.000195166547];
    const COS: &'static [f32] = &[0.0416666456, -0.00138873619, 2.44377497e-05];
    const ERF_SMALL: &'static [f32] = &[
        1.12837911,
        -0.37612626,
        0.112835854,
        -0.0268538129,
        0.00518832775,
        -0.000801019371,
        7.85386073e-05,
    ];
    const ERF_LARGE: &'static [f32] =
        &[-5.36494112, -4.41815948, -0.9237535, -0.0164879058, 0.00354422932, -0.000711110362, 0.00018637866];
    const ERF_CENTRE: f32 = 2.0;
    const ERF_ONE: f32 = 4.0;
    const TANH_ONE: f32 = 10.0;
}

#[allow(clippy::excessive_precision, clippy::unreadable_literal)] // fitted numbers are printed, not typed
impl Coefficients for f64 {
    const LN2: [f64; 2] = [0.6931471805598903, 5.497923018708371e-14];
    const EXP: &'static [f64] = &[
        0.5000000000000011,
        0.16666666666666427,
        0.04166666666652647,
        0.008333333333483014,
        0.0013888888944694135,
        0.00019841269537725198,
        2.480149191061635e-05,
        2.755755296334393e-06,
        2.7630699645587586e-07,
        2.50123792369725e-08,
    ];
    const EXP_NORMAL: [f64; 2] = [-708.3964185322641, 709.782712893384];
    const EXP_ANY: [f64; 2] = [-746.0, 711.0];
    const LOG: &'static [f64] = &[
        0.6666666666666735,
        0.39999999999411096,
        0.28571428743263927,
        0.22222198475739893,
        0.1818356975604834,
        0.15313902778693286,
        0.14797512724715012,
    ];
    const POW_LOG: &'static [f64] = &[
        0.4000000000000227,
        0.2857142857009194,
        0.2222222252134694,
        0.1818178423757403,
        0.15386763510831897,
        0.13256669243152855,
        0.13197747045054695,
    ];
    const TWO_THIRDS: [f64; 2] = [0.6666666666666666, 3.700743415417188e-17];
    const HALF_PI: [f64; 4] =
        [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32];
    const TRIG_LIMIT: f64 = 1.6e6;
    const SIN: &'static [f64] = &[
        -0.16666666666666632,
        0.008333333333322316,
        -0.0001984126982972525,
        2.7557313662077965e-06,
        -2.505075326798432e-08,
        1.5896505144027566e-10,
    ];
    const COS: &'static [f64] = &[
        0.0416666666666666,
        -0.001388888888887399,
        2.480158728939509e-05,
        -2.75573143260766e-07,
        2.0875719564688728e-09,
        -1.1359448972656023e-11,
    ];
    const ERF_SMALL: &'static [f64] = &[
        std::f64::consts::FRAC_2_SQRT_PI,
        -0.3761263890318352,
        0.11283791670944185,
        -0.026866170643111465,
        0.005223977606118293,
        -0.0008548325929300999,
        0.00012055293576403055,
        -1.4924712291205996e-05,
        1.64471314267048e-06,
        -1.6206312584843353e-07,
        1.3710975093595291e-08,
        -7.779458245886857e-10,
    ];
    const ERF_LARGE: &'static [f64] = &[
        -10.720363041980844,
        -6.30375368900322,
        -0.9573942188219227,
        -0.007411891878758886,
        0.0013533104353160672,
        -0.00024569159124134525,
        4.3082804981283114e-05,
        -7.11540092192429e-06,
        1.0675287899722093e-06,
        -1.3835456074655143e-07,
        1.1196042511951537e-08,
        2.016589092019479e-09,
        5.788662008082284e-10,
        4.2684078982403066e-10,
        -2.5225198411586793e-10,
        -1.510442023017033e-10,
        -4.685884697513029e-11,
        -4.928314617879932e-12,
    ];
    const ERF_CENTRE: f64 = 3.0;
    const ERF_ONE: f64 = 5.95;
    const TANH_ONE: f64 = 20.0;
}
