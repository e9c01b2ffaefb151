//! State that policies name, that a library keeps, that lies in lists, and that a fork takes along.

use super::*;

/// The same by a policy, the source untouched: variables, and the memory that a function allocates.
fn by_policy() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-policy");
    let (source, policy, out) = (dir.join("own.c"), dir.join("own.policy"), dir.join("own"));
    std::fs::write(
        &source,
        include_str!("../../../cc/tests/programs/state/own.c"),
    )?;
    std::fs::write(
        &policy,
        "local-handler push\ndup list\ndup-memory make\ncrc total\n",
    )?;
    let plain = dir.join("plain");
    build(
        compiler(false, false),
        &["-O2"],
        std::slice::from_ref(&source),
        &plain,
    )?;
    let golden = run(&plain, &[])?.stdout;
    let flag = format!("--steadfast-policy={}", policy.display());
    build(
        compiler(true, false),
        &[&flag, "--state=dup,crc", "-O2"],
        &[source],
        &out,
    )?;
    let ran = run(&out, &[])?;
    if !ran.status.success() || ran.stdout != golden || golden.is_empty() || !ran.stderr.is_empty()
    {
        return Err(said(&ran).into());
    }
    ended(
        &run(&out, &["n"])?,
        122,
        &["object and copy differ", "memory at"],
        &[],
    )?;
    ended(
        &run(&out, &["t"])?,
        122,
        &["its checksum does not fit", "(total at 0x0)"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A part of an object that a library keeps has no copy, the rest has, and the next object in its place as well.
fn kept_by_a_library() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-keeps");
    let library = dir.join("library.o");
    let source = source("keeps.c");
    build(
        compiler(false, false),
        &["-O2", "-c", "-DLIBRARY"],
        std::slice::from_ref(&source),
        &library,
    )?;
    let make = |name: &str, policy: &str, hardened: bool| -> Result<PathBuf, Failed> {
        let (file, out) = (dir.join(format!("{name}.policy")), dir.join(name));
        std::fs::write(&file, policy)?;
        let flag = format!("--steadfast-policy={}", file.display());
        let words: &[&str] = if hardened {
            &[&flag, "--state=dup", "-O2"]
        } else {
            &["-O2"]
        };
        build(
            compiler(hardened, false),
            words,
            &[source.clone(), library.clone()],
            &out,
        )?;
        Ok(out)
    };
    let golden = run(&make("plain", "", false)?, &[])?.stdout;
    let state = "local-handler handle\ndup-memory make\n";
    let out = make("kept", &format!("{state}keeps hook_set 0:#16\n"), true)?;
    let scrubbed = |arguments: &[&str]| {
        Command::new(&out)
            .args(arguments)
            .env("STEADFAST_SCRUB", "1000000000")
            .output()
    };
    for ran in [run(&out, &[])?, scrubbed(&[])?] {
        if !ran.status.success() || ran.stdout != golden || !ran.stderr.is_empty() {
            return Err(said(&ran).into());
        }
    }
    for strike in ["before", "after", "reused"] {
        // What nobody touches again the scrubber alone can see: it repairs that, or stops.
        let ran = scrubbed(&[strike])?;
        if !String::from_utf8_lossy(&ran.stderr).contains("changed at rest") {
            return Err(format!("{strike}: {}", said(&ran)).into());
        }
    }
    let ran = scrubbed(&["beside"])?;
    if !ran.status.success() || !String::from_utf8_lossy(&ran.stderr).contains("repaired") {
        return Err(format!("beside: {}", said(&ran)).into());
    }
    // The library's own bytes are the library's: as without protection.
    let ran = run(&out, &["hook"])?;
    if !ran.status.success() || !ran.stderr.is_empty() {
        return Err(said(&ran).into());
    }
    let unsaid = make("unsaid", state, true)?;
    ended(
        &run(&unsaid, &[])?,
        122,
        &["object and copy differ", "memory at"],
        &[],
    )?;
    let long = make("long", &format!("{state}keeps hook_set 0:#4096\n"), true)?;
    ended(
        &run(&long, &[])?,
        121,
        &["more bytes than the object has", "fix:"],
        &[],
    )?;
    match make("mistyped", &format!("{state}keeps hook_sett 0:#16\n"), true) {
        Err(why)
            if why
                .message()
                .is_some_and(|why| why.contains("the policy's hook_sett")) => {}
        other => return Err(format!("a mistyped name of `keeps`: {other:?}").into()),
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Strings through lists of arguments, what the C library writes outside handlers, constants.
fn lists() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-lists");
    let (policy, plain) = (dir.join("constants.policy"), dir.join("plain"));
    std::fs::write(&policy, "dup-constants\n")?;
    let source = source("lists.c");
    let sources = std::slice::from_ref(&source);
    build(
        compiler(false, false),
        &["-DSTEADFAST_PLAIN", "-O2"],
        sources,
        &plain,
    )?;
    let golden = run(&plain, &[])?.stdout;
    let constants = format!("--steadfast-policy={}", policy.display());
    let ways: [(&str, &[&str]); 8] = [
        ("dup-O0", &["--state=dup", "-O0"]),
        ("dup-O2", &["--state=dup", "-O2"]),
        ("crc-O2", &["--state=crc", "-DKEPT=SF_CRC", "-O2"]),
        ("constants-O0", &["--state=dup", &constants, "-O0"]),
        ("constants-O2", &["--state=dup", &constants, "-O2"]),
        (
            "constants-fortified",
            &["--state=dup", &constants, "-O2", "-D_FORTIFY_SOURCE=2"],
        ),
        ("masks", &["--state=dup,crc", "-O3", "-mavx2"]),
        (
            "crc-masks",
            &["--state=crc", "-DKEPT=SF_CRC", "-O3", "-mavx2"],
        ),
    ];
    for (way, words) in ways {
        let out = dir.join(way);
        build(compiler(true, false), words, sources, &out)?;
        let ran = run(&out, &[])?;
        if !ran.status.success() || ran.stdout != golden || golden.is_empty() {
            return Err(format!("{way}: {}", said(&ran)).into());
        }
        ended(&run(&out, &["string"])?, 122, &["handler handle"], &[])?;
        ended(&run(&out, &["tail"])?, 122, &["outside handlers"], &[])?;
        if way.starts_with("constants") {
            ended(&run(&out, &["constant"])?, 122, &["handler handle"], &[])?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Types that no other module knows are thrown, and found again, by what is in neither run.
fn constants_of_types() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-types");
    let policy = dir.join("constants.policy");
    std::fs::write(&policy, "dup-constants\n")?;
    let constants = format!("--steadfast-policy={}", policy.display());
    let golden = run(&built(&dir, "exceptions.cc", &[])?, &[])?.stdout;
    let ran = run(
        &built(&dir, "exceptions.cc", &["--state=dup", &constants, "-O2"])?,
        &[],
    )?;
    if !ran.status.success() || ran.stdout != golden || golden.is_empty() {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What threads hold of the allocator of protected memory is no child's.
fn forks() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-forks");
    let (policy, out) = (dir.join("forks.policy"), dir.join("forks"));
    std::fs::write(&policy, "local-handler handle\ndup-memory take\n")?;
    let flag = format!("--steadfast-policy={}", policy.display());
    build(
        compiler(true, false),
        &[&flag, "--state=dup", "-O2", "-pthread"],
        &[source("forks.c")],
        &out,
    )?;
    let ran = run(&out, &[])?;
    if !ran.status.success() || !ran.stderr.is_empty() {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::state::policy", by_policy),
        Trial::test("harden::state::lists", lists),
        Trial::test("harden::state::forks", forks),
        Trial::test("harden::state::types", constants_of_types),
        Trial::test("harden::state::keeps", kept_by_a_library),
    ]
}
