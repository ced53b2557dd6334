//! Numbers with units, dates, and text that cannot break out of the page.

use std::fmt;

/// What is shown where nothing was measured.
pub const NOT_MEASURED: &str = "<span class=none>not measured</span>";

/// Text for HTML and SVG, in elements and in quoted attributes.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Control characters are no part of HTML; some would end the document.
                c if c.is_control() => f.write_str(" ")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Three digits that matter.
pub fn number(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "–".into(),
        0.0 => "0".into(),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.1 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// A number with the greatest of the units, each `step` times the one before, that it reaches.
fn scaled(x: f64, step: f64, units: &[&str]) -> String {
    let mut value = x;
    let mut last = 0;
    while value.abs() >= step * 0.99995 && last + 1 < units.len() {
        value /= step;
        last += 1;
    }
    format!("{} {}", number(value), units[last])
}

/// Seconds, down to nanoseconds.
pub fn seconds(x: f64) -> String {
    scaled(x * 1e9, 1000.0, &["ns", "µs", "ms", "s"])
}

/// Operations per second.
pub fn rate(x: f64) -> String {
    scaled(x, 1000.0, &["op/s", "kop/s", "Mop/s", "Gop/s", "Top/s"])
}

/// Bytes per second.
pub fn bandwidth(x: f64) -> String {
    scaled(x, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Bytes in powers of ten, for axes.
pub fn size(x: f64) -> String {
    scaled(x, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// The label of a round value: no zeros after the point.
pub fn tick(label: &str) -> String {
    let (number, unit) = label.split_once(' ').map_or((label, ""), |(number, unit)| (number, unit));
    let short =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if unit.is_empty() { short.to_owned() } else { format!("{short} {unit}") }
}

/// Bytes.
pub fn bytes(x: f64) -> String {
    scaled(x, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A share.
pub fn percent(x: f64) -> String {
    format!("{} %", if x < 0.0995 { format!("{:.1}", 100.0 * x) } else { format!("{:.0}", 100.0 * x) })
}

/// A whole number in groups of three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            // A narrow space that does not break.
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Milliseconds since 1970 as `2026-11-16 10:40 UTC`.
pub fn date(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    let (days, minute) = (minutes.div_euclid(1440), minutes.rem_euclid(1440));
    // Years that begin in March, in eras of 400 of them: the leap day is the last of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let text = Escaped("</script><img src=x onerror='a' title=\"b\">&\u{0}").to_string();
        assert_eq!(text, "&lt;/script&gt;&lt;img src=x onerror=&#39;a&#39; title=&quot;b&quot;&gt;&amp; ");
    }

    #[test]
    fn numbers_have_units_and_three_digits() {
        assert_eq!(
            [seconds(1.5e-9), seconds(2.345e-5), seconds(1e-3), seconds(75.0)],
            ["1.50 ns", "23.4 µs", "1.00 ms", "75.0 s"]
        );
        assert_eq!(
            [rate(1.234e11), bandwidth(9.9996e9), bytes(1536.0)],
            ["123 Gop/s", "10.0 GB/s", "1.50 KiB"]
        );
        assert_eq!([percent(0.0123), percent(0.5), percent(1.2)], ["1.2 %", "50 %", "120 %"]);
        assert_eq!([tick("1.00 GB/s"), tick("0.50"), tick("100")], ["1 GB/s", "0.5", "100"]);
        assert_eq!([number(f64::NAN), number(0.0), number(0.01234)], ["–", "0", "0.012"]);
        assert_eq!(
            [count(7), count(1234), count(1_234_567)],
            ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]
        );
    }

    #[test]
    fn dates_of_known_moments() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_794_825_600_000), "2026-11-16 10:40 UTC");
        assert_eq!(date(-60_000), "1969-12-31 23:59 UTC");
    }
}
