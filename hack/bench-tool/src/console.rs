//! Cases of `olm console`: first page, search, upgrade graph, memory.
//!
//! The catalogs are directories, so that no cluster affects the figures.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde_json::{Deserializer, Value, json};

use crate::ConsoleArguments;
use crate::content::{Files, LARGE, PACKAGE, generate, package_files};
use crate::process::{PATIENCE, Server, memory};
use crate::table::{Table, Target, Unit};

/// Folder of the small catalog, below the folder of real data.
const SMALL: &str = "catalogs/community-v4.20";
/// Number of bundles of the drawn package.
const VERSIONS: usize = 150;
/// Texts that a user types, key by key.
const SEARCHES: [&str; 3] = ["argocd", "Database backup", "zzz"];
const LOOK: Duration = Duration::from_millis(1);

/// Measures all cases.
pub(crate) async fn measure(arguments: &ConsoleArguments) -> Result<Table> {
    let mut table = Table::default();
    let folder = tempfile::Builder::new().prefix("olm-bench-").tempdir()?;
    match &arguments.field_data {
        Some(data) => first_page(&mut table, arguments, &data.join(SMALL)).await?,
        None => table.remarks.push("Without OLM_FIELD_DATA: no case of the small catalog.".to_owned()),
    }
    let large = folder.path().join("large");
    write(&large, &generate(LARGE, arguments.seed)?)?;
    let many = folder.path().join("many");
    write(&many, &drawn_package(arguments.seed)?)?;
    let sources = [format!("large={}", large.display()), format!("many={}", many.display())];
    let console = Console::start(arguments, &sources).await?;
    console.list_of(LARGE.packages + 1).await?;
    search(&mut table, &console).await?;
    graph(&mut table, &console).await?;
    let note = "RssAnon, after all of the above".to_owned();
    let used = memory(console.server.pid(), "RssAnon")?;
    table.add("large: memory", used, Unit::Megabytes, None, Target::Limit(40.0), note);
    Ok(table)
}

/// Measures the time from the start of the process to its list of all packages.
async fn first_page(table: &mut Table, arguments: &ConsoleArguments, folder: &Path) -> Result<()> {
    let packages = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?.count();
    let started = Instant::now();
    let console = Console::start(arguments, &[format!("small={}", folder.display())]).await?;
    console.list_of(packages).await?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    let note = format!("{packages} packages, from the start of the process");
    table.add("small: first page", took, Unit::Milliseconds, None, Target::Limit(300.0), note);
    let again = Instant::now();
    console.get("/").await?;
    let took = again.elapsed().as_secs_f64() * 1e3;
    table.add("small: the page again", took, Unit::Milliseconds, None, Target::Limit(300.0), "");
    let used = memory(console.server.pid(), "RssAnon")?;
    table.add("small: memory", used, Unit::Megabytes, None, Target::Limit(40.0), "RssAnon");
    Ok(())
}

/// Measures the slowest response to one key of a search.
async fn search(table: &mut Table, console: &Console) -> Result<()> {
    let mut slowest = (Duration::ZERO, "");
    for text in SEARCHES {
        for (end, key) in text.char_indices() {
            let typed = &text[..end + key.len_utf8()];
            let started = Instant::now();
            console.get(&format!("/?q={}&fragment=1", typed.replace(' ', "+"))).await?;
            slowest = slowest.max((started.elapsed(), typed));
        }
    }
    let note = format!("{} packages, slowest of all keys: {:?}", LARGE.packages + 1, slowest.1);
    let took = slowest.0.as_secs_f64() * 1e3;
    table.add("large: search, one key", took, Unit::Milliseconds, None, Target::Limit(50.0), note);
    Ok(())
}

async fn graph(table: &mut Table, console: &Console) -> Result<()> {
    let path = format!("/catalogs/many/packages/{PACKAGE}/graph");
    let mut times = Vec::new();
    let mut length = 0;
    for _ in 0..2 {
        let started = Instant::now();
        length = console.get(&path).await?.len();
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    for (case, took) in ["first page", "the page again"].iter().zip(times) {
        let note = format!("whole page, {} kB", length / 1000);
        let case = format!("graph of {VERSIONS} versions: {case}");
        table.add(case, took, Unit::Milliseconds, None, Target::Limit(200.0), note);
    }
    Ok(())
}

/// Catalog with one package of [`VERSIONS`] bundles. Every third entry skips the three before it.
fn drawn_package(seed: u64) -> Result<Files> {
    let mut files = package_files(PACKAGE, VERSIONS, seed)?;
    for file in files.values_mut() {
        let mut documents: Vec<Value> =
            Deserializer::from_slice(file).into_iter().collect::<Result<_, _>>()?;
        for channel in documents.iter_mut().filter(|document| document["schema"] == "olm.channel") {
            let entries = channel["entries"].as_array_mut().context("a channel without entries")?;
            let names: Vec<Value> = entries.iter().map(|entry| entry["name"].clone()).collect();
            for at in (4..names.len()).step_by(3) {
                entries[at]["skips"] = json!(names[at - 3..at]);
                entries[at]["replaces"] = names[at - 4].clone();
            }
        }
        *file = documents.iter().map(|document| format!("{document}\n")).collect::<String>().into_bytes();
    }
    Ok(files)
}

fn write(folder: &Path, files: &Files) -> Result<()> {
    for (path, content) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().context("a path without folder")?)?;
        std::fs::write(path, content)?;
    }
    Ok(())
}

/// Running console, with a session.
struct Console {
    server: Server,
    client: Client,
    address: String,
    cookie: String,
}

impl Console {
    async fn start(arguments: &ConsoleArguments, sources: &[String]) -> Result<Self> {
        let mut flags = vec!["console".to_owned(), "--no-open".to_owned()];
        flags.extend(sources.iter().map(|source| format!("--catalog={source}")));
        let (server, login) = Server::spawn_printing("olm console", &arguments.binary, &flags)?;
        let login = Url::parse(&login)?;
        let (host, port) = login.host_str().zip(login.port()).context("the console prints no address")?;
        // Browsers resolve names below localhost without DNS.
        let client = Client::builder()
            .resolve(host, (Ipv4Addr::LOCALHOST, port).into())
            .no_proxy()
            .timeout(PATIENCE)
            .redirect(Policy::none())
            .build()?;
        let answer = client.get(login.clone()).send().await?;
        let cookie = answer.headers().get(SET_COOKIE).context("the console gives no cookie")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        let address = format!("http://{host}:{port}");
        Ok(Self { server, client, address, cookie })
    }

    /// Body of the response for `path`.
    async fn get(&self, path: &str) -> Result<String> {
        let url = format!("{}{path}", self.address);
        let answer = self.client.get(&url).header(COOKIE, &self.cookie).send().await?;
        ensure!(answer.status() == StatusCode::OK, "{url}: {}", answer.status());
        Ok(answer.text().await?)
    }

    /// Waits until the first page lists this number of packages.
    async fn list_of(&self, packages: usize) -> Result<()> {
        let started = Instant::now();
        let expected = format!("{packages} packages");
        while !self.get("/").await?.contains(&expected) {
            ensure!(started.elapsed() < PATIENCE, "the first page does not list {expected}");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}
