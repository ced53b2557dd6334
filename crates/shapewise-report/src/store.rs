//! How the store is: where, how much, and whether it is whole.

use std::fmt::Write;

use crate::model::{Report, Store};
use crate::table::{Cell, Table};
use crate::text::{self, Escaped, NOT_MEASURED};

/// The card.
pub fn card(report: &Report) -> String {
    let store = &report.store;
    let mut table =
        Table::new("Rows of this device", &[("operation", false), ("rows", true), ("workloads", true)]);
    for row in &store.operations {
        let whole = |n: u64| Cell::number(Some(n as f64), |n| text::count(n as u64));
        table.row([Cell::text(&row.operation), whole(row.rows), whole(row.workloads)]);
    }
    format!("<div class=beside><dl class=facts>{}</dl><div>{}</div></div>", facts(store), table.html())
}

fn facts(store: &Store) -> String {
    let share = |part: u64| match store.rows {
        0 => text::count(part),
        rows => format!("{} ({})", text::count(part), text::percent(part as f64 / rows as f64)),
    };
    let health = match &store.damage {
        None => "<span class=none>not checked</span>".to_owned(),
        Some(Ok(())) => "<span class=good>whole</span>: every page and index was read".to_owned(),
        Some(Err(damage)) => format!("<span class=bad>damaged</span>: {}", Escaped(damage)),
    };
    let span = store
        .span
        .map_or(NOT_MEASURED.to_owned(), |(from, to)| format!("{} to {}", text::date(from), text::date(to)));
    let path =
        store.path.as_deref().map_or("in memory".to_owned(), |p| format!("<code>{}</code>", Escaped(p)));
    let rows = [
        ("file", path),
        ("health", health),
        ("size", store.bytes.map_or(NOT_MEASURED.to_owned(), |b| text::bytes(b as f64))),
        ("schema", store.schema.map_or(NOT_MEASURED.to_owned(), |s| s.to_string())),
        ("rows", text::count(store.rows)),
        ("of other devices", share(store.elsewhere)),
        ("of changed kernels", share(store.stale)),
        ("while busy", share(store.busy)),
        ("measured", span),
    ];
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        // Writing to a string cannot fail.
        let _ = write!(out, "<dt>{name}<dd>{value}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rows;

    #[test]
    fn health_is_told_as_it_is() {
        let with =
            |damage| card(&Report { store: Store { damage, ..Store::default() }, ..Report::default() });
        assert!(with(None).contains("not checked"));
        assert!(with(Some(Ok(()))).contains("whole"));
        assert!(with(Some(Err("page 3 <lost>".into()))).contains("page 3 &lt;lost&gt;"));
    }

    #[test]
    fn shares_are_of_all_rows() {
        let operations = vec![Rows { operation: "matmul".into(), rows: 3000, workloads: 20 }];
        let store =
            Store { rows: 4000, stale: 1000, operations, span: Some((0, 60_000)), ..Store::default() };
        let html = card(&Report { store, ..Report::default() });
        assert!(html.contains("1\u{202f}000 (25 %)") && html.contains("1970-01-01 00:01"), "{html}");
    }
}
