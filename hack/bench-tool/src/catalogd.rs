//! Cases of catalogd: measured figures, compared with those of the Go reference.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
};
use reqwest::header::{HeaderName, LAST_MODIFIED};

use crate::CatalogdArguments;
use crate::content::{self, BUNDLE, LARGE, OTHER, PACKAGE, generate};
use crate::load::{Answer, Rates, get, load};
use crate::process::{Watch, disk, memory, processor_time};
use crate::setup::{Catalogd, Setup};
use crate::table::{Table, Target, Unit};

/// Cases of catalogd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Time from apply to Serving of the small catalog
    ServeSmall,
    /// Time from apply to Serving of the large catalog, with memory and disk
    ServeLarge,
    /// Time from process start to the first response, with content on disk
    Restart,
    /// All packages of the large catalog (40 kB)
    PackagesLarge,
    /// All packages of the small catalog (457 kB)
    PackagesSmall,
    /// One package of the large catalog (1.5 MB)
    PackageLarge,
    /// One bundle of the large catalog (82 kB)
    BundleLarge,
    /// The whole large catalog (124 MB)
    AllLarge,
    /// The whole large catalog, compressed
    AllGzipLarge,
    /// A conditional request for unchanged content (304)
    Unchanged,
    /// Readers of one catalog while another catalog is replaced
    Update,
    /// Idle load of many small catalogs, and readers of one of them while another one is replaced
    Many,
}

/// Cases that do not need the large catalog.
const WITHOUT_LARGE: [Case; 3] = [Case::ServeSmall, Case::PackagesSmall, Case::Many];
/// Folder of the small catalog, below the folder of real data.
const SMALL: &str = "catalogs/community-v4.20";
/// Duration at the start of a load case whose responses are not counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// Number of counted requests in sequential cases, after some uncounted ones.
const SINGLE: usize = 9;
const CONDITIONAL: usize = 300;
/// Seconds that the reference takes to compress the large catalog, measured on 2026-11-22.
const FIRST_GZIP: f64 = 2.4;
/// Duration of the measurement of registry traffic after a restart.
const AFTER_RESTART: Duration = Duration::from_secs(2);
/// Number of catalogs in the case `many`, and duration of its idle measurement.
const MANY: usize = 100;
const AT_REST: Duration = Duration::from_secs(30);

struct Bench<'a> {
    arguments: &'a CatalogdArguments,
    setup: Setup,
    /// `None` only between two processes.
    running: Option<Catalogd>,
    table: Table,
}

/// Measures the selected cases.
pub(crate) async fn measure(arguments: &CatalogdArguments) -> Result<Table> {
    let setup = Setup::start(None).await?;
    let running = Some(Catalogd::start(&setup, &arguments.binary, arguments.log).await?);
    let mut bench = Bench { arguments, setup, running, table: Table::default() };
    bench.table.remarks.extend([
        "Reference: figures of the Go reference, commit df2c201, on 2 cores, not of this machine.".to_owned(),
        "Clients, registry, etcd and kube-apiserver share this machine with catalogd.".to_owned(),
    ]);
    // Connections, leadership and code are warm before the measurement.
    let tiny = [("index.yaml".to_owned(), b"schema: olm.package\nname: tiny\n".to_vec())].into();
    let digest = bench.setup.push("tiny", "v1", &tiny)?;
    bench.setup.serve("tiny", "v1", &digest).await?;
    bench.large().await?;
    bench.small().await?;
    if bench.wants(Case::Update) {
        bench.update().await?;
    }
    if bench.wants(Case::Many) {
        bench.many().await?;
    }
    if bench.wants(Case::Restart) {
        bench.restart().await?;
    }
    Ok(bench.table)
}

impl Bench<'_> {
    fn wants(&self, case: Case) -> bool {
        self.arguments.cases.is_empty() || self.arguments.cases.contains(&case)
    }

    fn server(&self) -> Result<&Catalogd> {
        self.running.as_ref().context("catalogd is not running")
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.server()?.server.pid())
    }

    async fn large(&mut self) -> Result<()> {
        let cases = &self.arguments.cases;
        if !cases.is_empty() && cases.iter().all(|case| WITHOUT_LARGE.contains(case)) {
            return Ok(());
        }
        let reads = [
            (Case::PackagesLarge, "large: packages", "schema=olm.package".to_owned(), 418.0, 20.0),
            (Case::PackageLarge, "large: one package", format!("package={PACKAGE}"), 166.0, 2.5),
            (Case::BundleLarge, "large: one bundle", format!("schema=olm.bundle&name={BUNDLE}"), 574.0, 10.0),
        ];
        let files = generate(LARGE, self.arguments.seed)?;
        let on_disk: usize = files.values().map(Vec::len).sum();
        let digest = self.setup.push("large", "v1", &files)?;
        drop(files);
        self.serve_large(&digest, on_disk).await?;
        for (case, name, query, reference, times) in reads {
            if self.wants(case) {
                self.rate(name, &format!("large/api/v1/metas?{query}"), reference, times).await?;
            }
        }
        if self.wants(Case::AllLarge) {
            let before = processor_time(self.pid()?)?;
            let answers = self.singly("large", &HeaderMap::new(), SINGLE).await?;
            let used = (processor_time(self.pid()?)? - before) / (SINGLE + SINGLE / 3) as f64;
            let (took, length) = (median(&answers), answers[0].length);
            let note = format!("{:.1} MB, {used:.3} s of the server each", length as f64 / 1e6);
            self.table.add("large: all", took, Unit::Seconds, 0.11, Target::AtMost(1.0), note);
        }
        if self.wants(Case::AllGzipLarge) {
            self.all_gzip().await?;
        }
        if self.wants(Case::Unchanged) {
            self.unchanged().await?;
        }
        Ok(())
    }

    async fn serve_large(&mut self, digest: &str, on_disk: usize) -> Result<()> {
        let cache = self.setup.file("catalogd");
        let watch = Watch::start(self.pid()?, &cache);
        let took = self.setup.serve("large", "v1", digest).await?.as_secs_f64();
        let peaks = watch.finish();
        if !self.wants(Case::ServeLarge) {
            return Ok(());
        }
        let note = format!(
            "{:.0} MB of JSON in {} packages, {} bundles",
            on_disk as f64 / 1e6,
            LARGE.packages,
            LARGE.bundles
        );
        self.table.add("large: apply to Serving", took, Unit::Seconds, 4.1, Target::AtMost(0.5), note);
        let note = format!("largest RssAnon; with mapped files {:.0} MB", memory(self.pid()?, "VmHWM")?);
        let (case, target) = ("large: memory meanwhile", Target::Limit(64.0));
        self.table.add(case, peaks.anonymous, Unit::Megabytes, 86.0, target, note);
        let note = format!("when Serving; meanwhile up to {:.0} MB", peaks.disk);
        let disk = disk(&cache);
        self.table.add("large: disk", disk, Unit::Megabytes, 339.0, Target::AtMost(0.5), note);
        Ok(())
    }

    async fn small(&mut self) -> Result<()> {
        if !self.wants(Case::ServeSmall) && !self.wants(Case::PackagesSmall) {
            return Ok(());
        }
        let Some(folder) = self.arguments.field_data.as_ref().map(|data| data.join(SMALL)) else {
            self.table.remarks.push(
                "skipped: the cases of the small catalog, because OLM_FIELD_DATA is not set".to_owned(),
            );
            return Ok(());
        };
        let digest = self.setup.push("small", "v1", &olm_image::read_folder(&folder)?)?;
        let took = self.setup.serve("small", "v1", &digest).await?;
        if self.wants(Case::ServeSmall) {
            let target = Target::AtMost(0.5);
            self.table.add("small: apply to Serving", took.as_secs_f64(), Unit::Seconds, 1.2, target, SMALL);
        }
        if self.wants(Case::PackagesSmall) {
            self.rate("small: packages", "small/api/v1/metas?schema=olm.package", 1149.0, 1.3).await?;
        }
        Ok(())
    }

    /// Measures `path` under load.
    async fn rate(&mut self, name: &str, path: &str, reference: f64, times: f64) -> Result<()> {
        let before = processor_time(self.pid()?)?;
        let rates = self.quiet(path).await?;
        let used = processor_time(self.pid()?)? - before;
        // The CPU time includes the requests of the warm-up.
        let share = self.arguments.seconds / (self.arguments.seconds + WARM_UP.as_secs_f64());
        let note = format!(
            "{}, {:.0} us of the server each",
            rates.note(),
            used * share * 1e6 / rates.count() as f64
        );
        self.table.add(name, rates.per_second(), Unit::PerSecond, reference, Target::AtLeast(times), note);
        Ok(())
    }

    async fn quiet(&self, path: &str) -> Result<Rates> {
        let end = async {
            tokio::time::sleep(WARM_UP + Duration::from_secs_f64(self.arguments.seconds)).await;
            Ok(())
        };
        load(self.server()?, path, WARM_UP, end).await
    }

    /// Requests all of `catalog` sequentially with one client. Drops the first responses.
    async fn singly(&self, catalog: &str, headers: &HeaderMap, count: usize) -> Result<Vec<Answer>> {
        let path = format!("{catalog}/api/v1/all");
        let mut answers = Vec::new();
        for _ in 0..count + count / 3 {
            answers.push(get(self.server()?, &path, headers).await?);
        }
        Ok(answers.split_off(count / 3))
    }

    async fn all_gzip(&mut self) -> Result<()> {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let is_compressed =
            |answer: &Answer| answer.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
        let first = get(self.server()?, "large/api/v1/all", &headers).await?;
        ensure!(is_compressed(&first), "the first response is not compressed");
        let (begun, whole) = (first.first_byte.as_secs_f64() * 1e3, first.took.as_secs_f64());
        let name = "large: first gzip, first byte";
        self.table.add(name, begun, Unit::Milliseconds, None, Target::Limit(50.0), "");
        let (name, note) = ("large: first gzip, whole", format!("{:.1} MB", first.length as f64 / 1e6));
        self.table.add(name, whole, Unit::Seconds, FIRST_GZIP, Target::AtMost(1.0), note);
        let answers = self.singly("large", &headers, SINGLE).await?;
        ensure!(answers.iter().all(is_compressed), "a response is not compressed");
        let target = Target::AtMost(0.1);
        self.table.add("large: all with gzip", median(&answers), Unit::Seconds, 0.45, target, "");
        Ok(())
    }

    async fn unchanged(&mut self) -> Result<()> {
        let server = self.server()?;
        let known = server.client.head(server.url("large/api/v1/all")).send().await?.headers().clone();
        let cases: [(&str, HeaderName, HeaderName); 2] = [
            ("large: 304 by ETag", IF_NONE_MATCH, ETAG),
            ("large: 304 by date", IF_MODIFIED_SINCE, LAST_MODIFIED),
        ];
        for (name, condition, value) in cases {
            let value = known.get(&value).with_context(|| format!("the response has no {value}"))?.clone();
            let answers =
                self.singly("large", &HeaderMap::from_iter([(condition, value)]), CONDITIONAL).await?;
            ensure!(answers.iter().all(|answer| answer.status == 304), "a response is not 304");
            let (took, target) = (median(&answers) * 1e3, Target::Limit(1.0));
            self.table.add(name, took, Unit::Milliseconds, None, target, "median");
        }
        Ok(())
    }

    /// Measures readers of one catalog, first idle, then while another catalog is replaced.
    async fn update(&mut self) -> Result<()> {
        let digest = self.setup.push("other", "v1", &generate(OTHER, self.arguments.seed)?)?;
        self.setup.serve("other", "v1", &digest).await?;
        let next = self.setup.push("large", "v2", &generate(LARGE, self.arguments.seed + 1)?)?;
        let path = format!("other/api/v1/metas?package={PACKAGE}");
        self.replace("other: read while large is replaced", &path, "large", &next).await
    }

    /// Measures clients that read `path`, first idle, then while `catalog` gets the content of its tag v2.
    async fn replace(&mut self, case: &str, path: &str, catalog: &str, digest: &str) -> Result<()> {
        let quiet = self.quiet(path).await?;
        let replaced = async {
            tokio::time::sleep(WARM_UP).await;
            self.setup.serve(catalog, "v2", digest).await.map(drop)
        };
        let busy = load(self.server()?, path, WARM_UP, replaced).await?;
        let p99 = |rates: &Rates| rates.quantile(0.99).as_secs_f64() * 1e3;
        let note = format!(
            "p99 beside that of the same reads in peace; longest {:.1} ms, in peace {:.1} ms",
            busy.quantile(1.0).as_secs_f64() * 1e3,
            quiet.quantile(1.0).as_secs_f64() * 1e3
        );
        self.table.add(case, p99(&busy), Unit::Milliseconds, p99(&quiet), Target::AtMost(2.0), note);
        Ok(())
    }

    async fn many(&mut self) -> Result<()> {
        let name = |number: usize| format!("many-{number:03}");
        for number in 0..MANY {
            let files = generate(content::SMALL, self.arguments.seed + number as u64)?;
            let digest = self.setup.push(&name(number), "v1", &files)?;
            self.setup.serve(&name(number), "v1", &digest).await?;
        }
        drop(self.setup.registry.take_requests());
        tokio::time::sleep(AT_REST).await;
        let requests = self.setup.registry.take_requests().len() as f64;
        let note = format!("within {} s; none is to be polled", AT_REST.as_secs());
        let case = format!("{MANY} catalogs: registry requests");
        self.table.add(&case, requests, Unit::Count, None, Target::Limit(0.0), note);
        let taken = memory(self.pid()?, "RssAnon")?;
        let case = format!("{MANY} catalogs: memory");
        self.table.add(&case, taken, Unit::Megabytes, None, Target::Limit(48.0), "");
        let next = self.setup.push(&name(1), "v2", &generate(content::SMALL, self.arguments.seed + 1000)?)?;
        let path = format!("{}/api/v1/metas?package={PACKAGE}", name(0));
        let case = format!("{MANY} catalogs: read while another is replaced");
        self.replace(&case, &path, &name(1), &next).await
    }

    async fn restart(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.server.stop().await?;
        }
        // Discards requests from before the start.
        drop(self.setup.registry.take_requests());
        let mut server = Catalogd::spawn(&self.setup, &self.arguments.binary, self.arguments.log)?;
        let served = server.until("large/api/v1/all", 200).await?;
        let took = served.duration_since(server.started).as_secs_f64();
        self.running = Some(server);
        tokio::time::sleep(AFTER_RESTART).await;
        let requests = self.setup.registry.take_requests();
        let blobs = requests.iter().filter(|request| request.contains("/blobs/")).count();
        let note = format!(
            "registry requests within {} s: {}, of blobs: {blobs}",
            AFTER_RESTART.as_secs(),
            requests.len()
        );
        self.table.add("large: restart to serving", took, Unit::Seconds, None, Target::Limit(0.3), note);
        Ok(())
    }
}

fn median(answers: &[Answer]) -> f64 {
    let mut took: Vec<f64> = answers.iter().map(|answer| answer.took.as_secs_f64()).collect();
    took.sort_by(f64::total_cmp);
    took.get(took.len() / 2).copied().unwrap_or_default()
}
