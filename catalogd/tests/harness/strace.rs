//! Kills a running catalogd at an exact system call with `strace`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The calls that create, write, rename and remove files and directories.
const CALLS: &str = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,\
                     unlink,unlinkat,rmdir,mkdir,mkdirat,chmod,fchmod,fchmodat,copy_file_range";

/// A call of a thread: its name, and the number of calls of that name in the thread so far, this one included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) call: String,
    pub(crate) ordinal: usize,
}

/// A running `strace` of a process.
pub(crate) struct Strace {
    child: Child,
    log: PathBuf,
}

impl Strace {
    /// Attaches to a process and its threads. Kills it at `point`, if given.
    pub(crate) fn attach(process: u32, log: &Path, point: Option<&Point>) -> Self {
        let command = command(log, point);
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(["-p", &process.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed");
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("attached") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "strace does not attach");
        }
        // Drained, so that strace never blocks on the pipe.
        std::thread::spawn(move || said.lines().for_each(drop));
        Self { child, log: log.to_owned() }
    }

    /// Detaches from the process, if it still runs, and returns its trace.
    pub(crate) fn finish(mut self) -> Trace {
        self.interrupt();
        Trace { lines: std::fs::read_to_string(&self.log).unwrap() }
    }

    fn interrupt(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            // Fails only if strace has exited already.
            let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        }
        self.child.wait().unwrap();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // The process continues after the detach.
        self.interrupt();
    }
}

/// The command line that traces a process. Append the program and its arguments, or `-p` and the process ID.
pub(crate) fn command(log: &Path, point: Option<&Point>) -> Vec<String> {
    let trace = format!("trace={CALLS}");
    let log = log.display().to_string();
    let fixed = ["strace", "-f", "-y", "-s", "0", "-e", &trace, "-e", "signal=none", "-o", &log];
    let kill = point.map(|Point { call, ordinal }| format!("inject={call}:signal=SIGKILL:when={ordinal}"));
    fixed
        .into_iter()
        .map(str::to_owned)
        .chain(kill.into_iter().flat_map(|kill| ["-e".to_owned(), kill]))
        .collect()
}

/// The traced system calls of a process.
pub(crate) struct Trace {
    lines: String,
}

impl Trace {
    /// The calls on files below `directory`, each with its place: call, path without random parts, and the ordinal
    /// of this combination.
    pub(crate) fn calls_below(&self, directory: &Path) -> Vec<(Point, String)> {
        let directory = format!("{}/", directory.display());
        let mut ordinals: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut occurrences: BTreeMap<String, usize> = BTreeMap::new();
        let mut found = Vec::new();
        for line in self.lines.lines() {
            let Some((thread, call, arguments)) = parse(line) else {
                continue;
            };
            let ordinal = ordinals.entry((thread, call)).or_default();
            *ordinal += 1;
            let Some((_, path)) = arguments.split_once(&directory) else {
                continue;
            };
            let path = path.split(['"', '>']).next().unwrap_or_default();
            let place = format!("{call} {}", without_random_parts(path));
            let occurrence = occurrences.entry(place.clone()).or_default();
            *occurrence += 1;
            let point = Point { call: call.to_owned(), ordinal: *ordinal };
            found.push((point, format!("{place} {occurrence}")));
        }
        found
    }

    /// The place below `directory` where the process was killed: the last call at `point`.
    pub(crate) fn killed_at(&self, directory: &Path, point: &Point) -> Option<String> {
        let calls = self.calls_below(directory);
        calls.into_iter().rev().find(|(at, _)| at == point).map(|(_, place)| place)
    }
}

/// The distinct points of calls, in order.
pub(crate) fn points(calls: Vec<(Point, String)>) -> Vec<Point> {
    let mut seen = BTreeSet::new();
    calls.into_iter().map(|(point, _)| point).filter(|point| seen.insert(point.clone())).collect()
}

/// Thread, call and arguments of a line like `17 fsync(9</x/y>) = 0`.
fn parse(line: &str) -> Option<(&str, &str, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (call, arguments) = rest.trim_start().split_once('(')?;
    call.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some((thread, call, arguments))
}

fn without_random_parts(path: &str) -> String {
    let part = |part: &str| match part {
        part if part.starts_with(".staging-") => ".staging".to_owned(),
        part if part.starts_with(".unpack-") => ".unpack".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}
