// Files through the Rust library: create, rename, copy, metadata, a directory walked in sorted order, removal.
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};

fn main() -> io::Result<()> {
    fs::create_dir_all("top/sub/deep")?;
    for i in 0..20 {
        fs::write(format!("top/sub/f{i:02}"), format!("file {i}\n").repeat(i))?;
    }
    fs::copy("top/sub/f07", "top/copied")?;
    fs::rename("top/sub/f08", "top/sub/deep/renamed")?;
    let mut names: Vec<_> = fs::read_dir("top/sub")?
        .map(|e| e.map(|e| (e.file_name(), e.metadata().map(|m| m.len()).unwrap_or(0))))
        .collect::<Result<_, _>>()?;
    names.sort();
    println!("{} entries, last {:?}", names.len(), names.last());
    let mut f = fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open("top/copied")?;
    f.write_all(b"appended")?;
    f.seek(SeekFrom::Start(3))?;
    let mut s = String::new();
    f.read_to_string(&mut s)?;
    println!("{:?}", &s[s.len() - 12..]);
    println!("{:?}", fs::read("missing").unwrap_err().kind());
    fs::remove_dir_all("top/sub")
}
