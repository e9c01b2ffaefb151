//! Tables of text: the first column to the left, the others to the right.

/// Lays rows out under a header; every row has as many cells as the header.
#[must_use]
pub fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut width: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (known, cell) in width.iter_mut().zip(row) {
            *known = (*known).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (index, (cell, &width)) in cells.zip(&width).enumerate() {
            match index {
                0 => out += &format!("{cell:<width$}"),
                _ => out += &format!("  {cell:>width$}"),
            }
        }
        out.trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut header.iter().copied());
    out += &line(
        &mut width
            .iter()
            .map(|&w| "-".repeat(w))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str),
    );
    for row in rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}
