//! What cc1 compiles: one preprocessed C file of made-up but meaningful functions.
//!
//! The functions call each other (each only earlier ones, so inlining has work but recursion
//! none), loop over arrays, switch, walk lists and use structures; that gives the optimiser's
//! passes something in every category. The file has no `#include`: its few declarations are in it.

use std::fmt::Write as _;

use super::Rng;

const PRELUDE: &str = "\
typedef unsigned long u64; typedef unsigned int u32; typedef int i32;
extern int printf(const char *, ...); extern void *malloc(unsigned long);
struct node { struct node *next; u64 key; i32 weight[4]; double score; };
static u32 table[256]; static u64 matrix[16][16];
";

pub(crate) fn unit(functions: usize) -> String {
    let mut rng = Rng::new(0x6763_6331);
    let mut out = String::from(PRELUDE);
    for index in 0..functions {
        function(&mut out, &mut rng, index);
    }
    out += "int main(int argc, char **argv) {\n    u64 t = (u64)argc; (void)argv;\n";
    for index in 0..functions {
        let _ = writeln!(out, "    t += f{index}((struct node *)0, t, (u32)t & 63);");
    }
    out += "    printf(\"%lu\\n\", t);\n    return 0;\n}\n";
    out
}

fn function(out: &mut String, rng: &mut Rng, index: usize) {
    let linkage = if rng.chance(40) { "static " } else { "" };
    let _ = writeln!(
        out,
        "{linkage}u64 f{index}(struct node *p, u64 a, u32 n) {{"
    );
    let _ = writeln!(
        out,
        "    u64 b = a ^ {}ul, c = {}; u32 i, j; double d = 1.5;",
        rng.below(1 << 30),
        rng.below(100)
    );
    for _ in 0..4 + rng.below(6) {
        statement(out, rng, index, 1);
    }
    out.push_str("    return a + b * c + (u64)d;\n}\n");
}

fn statement(out: &mut String, rng: &mut Rng, index: usize, depth: usize) {
    let pad = "    ".repeat(depth);
    let kind = if depth > 3 {
        rng.below(4)
    } else {
        rng.below(10)
    };
    let (x, y) = (*rng.pick(&["a", "b", "c"]), expression(rng, 0));
    let _ = match kind {
        0 | 1 => writeln!(out, "{pad}{x} = {y};"),
        2 => writeln!(out, "{pad}table[({x}) & 255] += (u32)({y});"),
        3 if index > 0 => {
            writeln!(out, "{pad}{x} += f{}(p, {y}, n >> 1);", rng.below(index))
        }
        3 => writeln!(out, "{pad}{x} += {y};"),
        4 => {
            let _ = writeln!(out, "{pad}for (i = 0; i < n; i++) {{");
            let _ = writeln!(
                out,
                "{pad}    b += table[(i * {}) & 255] ^ (u32){x};",
                1 + rng.below(31)
            );
            statement(out, rng, index, depth + 2);
            writeln!(out, "{pad}}}")
        }
        5 => {
            let _ = writeln!(
                out,
                "{pad}for (i = 0; i < 16; i++) for (j = 0; j < 16; j++)"
            );
            writeln!(
                out,
                "{pad}    matrix[i][j] = matrix[j][i] * {x} + {};",
                rng.below(97)
            )
        }
        6 => {
            let _ = writeln!(out, "{pad}switch ({x} % {}) {{", 5 + rng.below(9));
            for case in 0..4 + rng.below(5) {
                let _ = writeln!(out, "{pad}case {case}:");
                statement(out, rng, index, depth + 2);
                let _ = writeln!(out, "{pad}    break;");
            }
            writeln!(out, "{pad}default: {x}--; }}")
        }
        7 => {
            let _ = writeln!(out, "{pad}while (p && p->key < {x}) {{");
            let _ = writeln!(
                out,
                "{pad}    c += p->weight[n & 3]; d += p->score * {}.25;",
                rng.below(9)
            );
            writeln!(out, "{pad}    p = p->next;\n{pad}}}")
        }
        _ => {
            let _ = writeln!(out, "{pad}if ({y} > {x}) {{");
            statement(out, rng, index, depth + 1);
            let _ = writeln!(out, "{pad}}} else {{");
            statement(out, rng, index, depth + 1);
            writeln!(out, "{pad}}}")
        }
    };
}

fn expression(rng: &mut Rng, depth: usize) -> String {
    if depth > 2 || rng.chance(25) {
        return match rng.below(4) {
            0 => format!("{}ul", rng.below(10_000)),
            1 => "(u64)n".to_owned(),
            2 => "table[n & 255]".to_owned(),
            _ => (*rng.pick(&["a", "b", "c"])).to_owned(),
        };
    }
    let (left, right) = (expression(rng, depth + 1), expression(rng, depth + 1));
    match rng.below(8) {
        0 => format!("({left} >> ({right} & 31))"),
        1 => format!("({left} / ({right} | 1))"),
        2 => format!("({left} ? {right} : {left})"),
        op => format!("({left} {} {right})", ["+", "-", "*", "&", "^"][op - 3]),
    }
}
