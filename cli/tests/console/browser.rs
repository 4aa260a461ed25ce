//! Headless chromium with its driver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::prelude::*;
use thirtyfour::{ChromiumLikeCapabilities, TypingData};

use crate::rig::Process;

/// Size of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Wide,
    /// A phone.
    Narrow,
}

/// Running browser.
pub(crate) struct Browser {
    pub(crate) driver: WebDriver,
    _process: Process,
}

impl Browser {
    /// Starts a browser. `None` if there is none.
    pub(crate) async fn start(screen: Screen) -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIPPED tests in the browser: there is no chromedriver");
            return None;
        };
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let started = lines.filter_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = { started }.next().expect("a port of chromedriver");
        let process = Process(child);
        // The driver is on this machine, but the client needs TLS anyway.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut wanted = DesiredCapabilities::chrome();
        for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"] {
            wanted.add_arg(argument).unwrap();
        }
        match screen {
            Screen::Wide => wanted.add_arg("--window-size=1280,900").unwrap(),
            Screen::Narrow => {
                let metrics = json!({"deviceMetrics": {"width": 390, "height": 844, "pixelRatio": 1.0}});
                wanted.add_experimental_option("mobileEmulation", metrics).unwrap();
            }
        }
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
        Some(Self { driver, _process: process })
    }

    pub(crate) async fn quit(self) {
        self.driver.quit().await.unwrap();
    }

    pub(crate) async fn wait_for(&self, selector: &str, limit: Duration) {
        self.wait_until(&format!("document.querySelector({selector:?}) !== null"), limit).await;
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) async fn wait_until(&self, condition: &str, limit: Duration) {
        let script = "const [condition, limit, done] = arguments;
            const end = Date.now() + limit;
            const is = Function('return ' + condition);
            const check = () => is() ? done(true) : Date.now() > end ? done(false) : setTimeout(check, 20);
            check();";
        self.driver.set_script_timeout(limit + Duration::from_secs(5)).await.unwrap();
        let end = std::time::Instant::now() + limit;
        loop {
            let arguments = vec![json!(condition), json!(limit.as_millis() as u64)];
            // Fails while a new page is loaded.
            match self.driver.execute_async(script, arguments).await {
                Ok(result) if *result.json() == json!(true) => return,
                Err(_) if std::time::Instant::now() < end => {}
                result => {
                    let page = self.driver.source().await.unwrap_or_default();
                    panic!("{condition}: {:?}\n{page}", result.map(|result| result.json().clone()));
                }
            }
        }
    }

    /// Types into the focused element.
    pub(crate) async fn keys(&self, keys: impl Into<TypingData>) {
        let focused = self.driver.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    /// Texts of the elements.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for element in self.driver.find_all(By::Css(selector)).await.unwrap() {
            texts.push(element.text().await.unwrap());
        }
        texts
    }

    pub(crate) async fn theme(&self, theme: &str) {
        let script = "document.documentElement.dataset.theme = arguments[0]";
        self.driver.execute(script, vec![json!(theme)]).await.unwrap();
    }

    /// Issues that axe-core calls serious or critical: rule, and the elements.
    pub(crate) async fn serious_issues(&self, axe: &str) -> Value {
        self.driver.execute(axe, vec![]).await.unwrap();
        let script = "const done = arguments[0];
            axe.run().then(found => done(found.violations
                .filter(issue => ['serious', 'critical'].includes(issue.impact))
                .map(issue => [issue.id, issue.nodes.map(node => node.html + ' ' + node.failureSummary)])));";
        self.driver.set_script_timeout(Duration::from_secs(60)).await.unwrap();
        self.driver.execute_async(script, vec![]).await.unwrap().json().clone()
    }

    /// Writes a picture of the window to the folder of build results.
    pub(crate) async fn screenshot(&self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&folder).unwrap();
        let picture = self.driver.screenshot_as_png().await.unwrap();
        std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}
