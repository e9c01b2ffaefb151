//! Cases of links: hard ones, symbolic ones, and files that have none left.

use super::Asked;

pub(super) fn symbolic_links(fs: &mut Asked<'_>) {
    fs.mkdir(0, "d");
    fs.mkdir(0, "d/e");
    fs.file("d/f", "text");
    fs.symlink("d/f", 0, "file");
    fs.symlink("d", 0, "dir");
    fs.symlink("none", 0, "dangling");
    fs.symlink("loop", 0, "loop");
    fs.symlink("two", 0, "one");
    fs.symlink("one/x", 0, "two");
    fs.symlink("../dir/f", 0, "d/up");
    fs.symlink("d/", 0, "slash");
    fs.symlink("d/f/", 0, "file-slash");
    fs.symlink("./dir/./e/..", 0, "dots");
    fs.symlink("", 0, "empty");
    fs.symlink("x", 0, "file");
    fs.symlink("x", 0, "dangling");
    fs.symlink("x", 0, "d");
    fs.symlink("x", 0, "new/");
    fs.symlink("x", 0, "none/new");
    fs.symlink("x", 0, "d/f/new");
    fs.list(0);
    for path in [
        "file",
        "dir",
        "dangling",
        "loop",
        "one",
        "two",
        "d/up",
        "slash",
        "file-slash",
        "dots",
        "file/",
        "dir/",
        "dangling/",
        "loop/",
        "dir/f",
        "dir/up",
        "dir/none",
        "dir/e/../f",
        "dir/..",
        "dir/../file",
        "file/x",
        "dangling/x",
        "loop/x",
        "slash/f",
        "slash/",
        "dots/f",
        "dots/",
        "dir/.",
        "file/.",
    ] {
        fs.stat_at(0, path);
        fs.link_stat(0, path);
        fs.target(0, path);
        for how in ["r", "rn", "rd", "rdn", "w"] {
            fs.open(0, path, how);
        }
    }
    fs.show("file");
    fs.show("dir/up");
    let dir = fs.open(0, "dir", "rd");
    fs.list(dir);
    let named = fs.open(0, "d", "rd");
    fs.same(dir, named);
    // A link that leads to another one, many times.
    fs.symlink("d/f", 0, "l0");
    for n in 1..20 {
        fs.symlink(&format!("l{}", n - 1), 0, &format!("l{n}"));
    }
    fs.show("l19");
    fs.link_stat(0, "l19");
}

pub(super) fn symbolic_links_and_names(fs: &mut Asked<'_>) {
    fs.mkdir(0, "d");
    fs.file("f", "text");
    fs.symlink("new", 0, "link");
    fs.open(0, "link", "cxw");
    fs.open(0, "link", "cnw");
    fs.open(0, "link/", "cw");
    // What the link leads to is made.
    let made = fs.open(0, "link", "crw");
    fs.write(made, "made", 0);
    fs.list(0);
    fs.show("new");
    fs.open(0, "link", "tw");
    fs.stat(made);
    fs.unlink(0, "new");
    fs.symlink("none/new", 0, "far");
    fs.open(0, "far", "cw");
    // Names are taken away, renamed and linked by themselves.
    fs.symlink("d", 0, "dir");
    fs.mkdir(0, "dir");
    fs.mkdir(0, "link");
    fs.mkdir(0, "link/");
    fs.rmdir(0, "dir");
    fs.rmdir(0, "dir/");
    fs.unlink(0, "dir/");
    fs.rename(0, "dir/", 0, "x");
    fs.rename(0, "dir", 0, "x/");
    fs.rename(0, "dir", 0, "moved");
    fs.target(0, "moved");
    fs.rename(0, "f", 0, "moved/g");
    fs.show("d/g");
    fs.rename(0, "d", 0, "moved");
    fs.rename(0, "moved", 0, "d");
    fs.rename(0, "link", 0, "moved");
    fs.target(0, "moved");
    fs.link(0, "moved", 0, "hard");
    fs.link_stat(0, "hard");
    fs.target(0, "hard");
    fs.symlink("d/g", 0, "to");
    fs.link(0, "to", 0, "d/hard");
    fs.link(0, "to/", 0, "y");
    fs.link(0, "d/g", 0, "to");
    fs.stat_at(0, "d/hard");
    fs.rename(0, "to", 0, "d/g");
    fs.stat_at(0, "d/g");
    fs.target(0, "d/g");
    fs.unlink(0, "moved");
    fs.link_stat(0, "hard");
    fs.unlink(0, "hard");
    fs.link_stat(0, "hard");
    // The number of a link is used again, and nothing of it is left.
    fs.symlink("other", 0, "again");
    fs.target(0, "again");
    fs.file("file", "bytes");
    fs.target(0, "file");
    fs.list(0);
}

pub(super) fn hard_links(fs: &mut Asked<'_>) {
    fs.file("a", "shared");
    fs.link(0, "a", 0, "b");
    fs.stat_at(0, "a");
    let (a, b) = (fs.open(0, "a", "rw"), fs.open(0, "b", "rw"));
    fs.same(a, b);
    fs.write(a, "S", 0);
    fs.read(b, 10, 0);
    fs.link(0, "none", 0, "c");
    fs.link(0, "a", 0, "b");
    fs.link(0, "a", 0, "a");
    fs.link(0, "a/", 0, "c");
    fs.link(0, "a", 0, "c/");
    fs.link(0, "a", 0, "none/c");
    fs.mkdir(0, "d");
    fs.link(0, "d", 0, "e");
    fs.link(0, "a", 0, "d");
    let d = fs.open(0, "d", "rd");
    fs.link(0, "b", d, "c");
    fs.stat(a);
    // Two names of one file: a rename of one over the other does nothing.
    fs.rename(0, "a", 0, "b");
    fs.list(0);
    fs.unlink(0, "a");
    fs.stat(a);
    fs.rename(d, "c", 0, "b");
    fs.unlink(0, "b");
    fs.stat(b);
    fs.show("d/c");
    fs.unlink(d, "c");
    fs.stat(b);
    fs.write(b, "still", 0);
    fs.read(a, 10, 0);
    fs.list(d);
}

pub(super) fn unlink_while_open(fs: &mut Asked<'_>) {
    fs.unlink(0, "none");
    fs.file("a", "old");
    let old = fs.open(0, "a", "rw");
    fs.unlink(0, "a");
    fs.unlink(0, "a");
    fs.open(0, "a", "r");
    fs.read(old, 10, 0);
    fs.stat(old);
    fs.write(old, "longer text", 0);
    fs.file("a", "new");
    let new = fs.open(0, "a", "r");
    fs.same(old, new);
    fs.read(old, 20, 0);
    fs.read(new, 20, 0);
    fs.set_size(old, 4);
    fs.close(new);
    fs.unlink(0, "a");
    fs.read(old, 20, 0);
    fs.close(old);
    fs.mkdir(0, "d");
    let d = fs.open(0, "d", "rd");
    fs.rmdir(0, "d");
    fs.open(d, "f", "cw");
    fs.mkdir(d, "e");
    fs.file("g", "text");
    fs.link(0, "g", d, "g");
    fs.rename(0, "g", d, "g");
    fs.mkdir(0, "d");
    fs.open(d, "f", "r");
    fs.list(0);
}
