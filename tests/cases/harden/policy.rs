//! Programs without annotations, hardened by a policy file.

use std::process::Command;

use libtest_mimic::Failed;

use super::compile::{build, compiler, ended, run};
use crate::bench::Bench;
use crate::trial::Trial;

/// Inputs and outputs that a policy finds in fields; `strike` changes a byte of either behind the log's back.
fn policy_fields() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-fields");
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../../cc/tests/programs/policy_fields.c"),
    )?;
    let policy = dir.join("policy");
    let flag = format!("--steadfast-policy={}", policy.display());
    let built = |statements: &str, flags: &[&str]| {
        std::fs::write(
            &policy,
            format!("{statements}\nlocal strike\nignore struck\n"),
        )?;
        let out = dir.join("program");
        let ran = compiler(true, false)
            .args(flags)
            .arg(&flag)
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        Ok::<_, Failed>((ran, out))
    };
    let input = "handler handle input=0->end-0->item(head)->bytes:0->item(head)->bytes unless=0->item(head)->flags&32";
    let output = "local-handler handle\noutput send_out 0->data:0->bytes-#2 unless=0->flags&32";
    struct Row<'a> {
        statements: &'a str,
        place: &'static str,
        says: &'static str,
    }
    for Row {
        statements,
        place,
        says,
    } in [
        Row {
            statements: input,
            place: "1",
            says: "an input has changed",
        },
        Row {
            statements: output,
            place: "2",
            says: "an output has changed",
        },
    ] {
        for level in ["-O0", "-O2"] {
            let (ran, out) = built(statements, &[level])?;
            ended(&ran, 0, &[], &["steadfast"])?;
            let clean = run(&out, &[])?;
            ended(&clean, 0, &[], &["steadfast"])?;
            if clean.stdout != b"31930\n" {
                return Err(String::from_utf8_lossy(&clean.stdout).into_owned().into());
            }
            ended(&run(&out, &[place])?, 122, &[says], &[])?;
            // Under the condition there is none.
            ended(&run(&out, &[place, "flags"])?, 0, &[], &["steadfast"])?;
        }
    }
    struct Wrong<'a> {
        statements: &'a str,
        flags: &'static [&'static str],
        says: &'static str,
    }
    for Wrong {
        statements,
        flags,
        says,
    } in [
        Wrong {
            statements: "handler handle input=0->no_such:#1",
            flags: &["-O2"],
            says: "no member 'no_such'",
        },
        Wrong {
            statements: "handler handle input=0->item->bytes:#1",
            flags: &["-O2"],
            says: "no pointer to a structure",
        },
        Wrong {
            statements: "handler handle input=0->item(tail)->bytes:#1",
            flags: &["-O2"],
            says: "about 'tail'",
        },
        Wrong {
            statements: "handler handle input=1->item:#1",
            flags: &["-O2"],
            says: "no argument 1",
        },
        Wrong {
            statements: input,
            flags: &["-O2", "-g1"],
            says: "debug information",
        },
    ] {
        let (ran, _) = built(statements, flags)?;
        ended(&ran, 1, &[says], &[])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A program without annotations, hardened by a policy file; what was hardened is reported.
fn by_policy() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-policy");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text);
    write(
        "main.c",
        include_str!("../../../cc/tests/programs/policy/main.c"),
    )?;
    write(
        "handle.c",
        include_str!("../../../cc/tests/programs/policy/handle.c"),
    )?;
    write(
        "send.c",
        include_str!("../../../cc/tests/programs/policy/send.c"),
    )?;
    write(
        "policy",
        "handler handle input=0:strlen # the text\noutput send_out 0:1\nracy racy\n",
    )?;
    let out = dir.join("program");
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    let ran = compiler(true, false)
        .args(["-O2", &policy])
        .args(["main.c", "handle.c", "send.c"].map(|name| dir.join(name)))
        .arg("-o")
        .arg(&out)
        .output()?;
    let built = String::from_utf8_lossy(&ran.stderr).into_owned();
    let said = run(&out, &[])?;
    if !ran.status.success()
        || !built.is_empty()
        || said.stdout != b"126\n137\n148\n"
        || !said.stderr.is_empty()
    {
        return Err(format!(
            "{}\n{built}{}",
            ran.status,
            String::from_utf8_lossy(&said.stdout)
        )
        .into());
    }
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(&out)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    let handler = &json["handlers"][0];
    if handler["name"] != "handle"
        || handler["kind"] != "edge"
        || json["functions_reached"] != 2
        || json["gaps"] != serde_json::json!([])
    {
        return Err(format!("{json:#}").into());
    }
    let explain = Command::new(Bench::get().binary())
        .args(["cc", "--explain", "handle.c:6"])
        .arg(&out)
        .output()?;
    let explained = String::from_utf8_lossy(&explain.stdout).into_owned();
    for word in ["store, logged", "racy load, replayed", "calls strlen: pure"] {
        if !explained.contains(word) {
            return Err(format!("--explain does not say {word:?}:\n{explained}").into());
        }
    }
    // A handler that only the policy knows: an error, since the others are there.
    write("policy", "handler handle\nhandler handel\n")?;
    let ran = compiler(true, false)
        .args(["-O2", &policy])
        .args(["main.c", "handle.c", "send.c"].map(|name| dir.join(name)))
        .arg("-o")
        .arg(&out)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !said.contains("handel") {
        return Err(format!("a handler that is not there: {}\n{said}", ran.status).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What a policy says of a function without hardened code holds behind a pointer, too; a variadic one is refused there by name.
fn classes_by_pointer() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-by-pointer");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text);
    write(
        "plain.c",
        include_str!("../../../cc/tests/programs/by_pointer/plain.c"),
    )?;
    write(
        "main.c",
        include_str!("../../../cc/tests/programs/by_pointer/main.c"),
    )?;
    write(
        "policy",
        "once count any\ndefer note\npure read_it\nwrap twice in_place\n",
    )?;
    let object = dir.join("plain.o");
    build(
        compiler(false, false),
        &["-c"],
        &[dir.join("plain.c")],
        &object,
    )?;
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    for way in ["-O0", "-O2"] {
        let out = dir.join("program");
        let sources = [dir.join("main.c"), object.clone()];
        // The name is that of the dynamic symbol table.
        build(
            compiler(true, false),
            &[way, &policy, "-rdynamic"],
            &sources,
            &out,
        )?;
        let ran = run(&out, &[])?;
        if ran.stdout != b"2 0 21 1\n4 5 21 2\n" {
            return Err(format!("{way}: {}", String::from_utf8_lossy(&ran.stdout)).into());
        }
        ended(
            &ran,
            121,
            &["reaches any through a pointer", "main.c:26"],
            &[],
        )?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::policy", by_policy),
        Trial::test("harden::policy_fields", policy_fields),
        Trial::test("harden::classes_by_pointer", classes_by_pointer),
    ]
}
