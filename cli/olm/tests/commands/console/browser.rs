//! Headless chromium, by the WebDriver protocol. No crate for it fits: one makes serde_json keep the order of keys in the
//! whole workspace, the other has a license that `deny.toml` does not allow.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use olm_control_plane::eventually;
use olm_require::Need;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::rig::Process;

/// Key of the reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Deadline of one command of the driver.
const DEADLINE: Duration = Duration::from_secs(90);
/// Time until a condition of a page is true.
const LIMIT: Duration = Duration::from_secs(90);
/// Number of browsers that run at the same time: each needs a processor.
static BROWSERS: Semaphore = Semaphore::const_new(2);
/// The browser resolves no name except those of the console, and requests nothing by itself.
const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE *.localhost",
    "--window-size=1200,720",
];

/// Code points of keys in the protocol.
pub(crate) mod key {
    pub(crate) const TAB: &str = "\u{e004}";
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const ESCAPE: &str = "\u{e00c}";
    pub(crate) const UP: &str = "\u{e013}";
    pub(crate) const DOWN: &str = "\u{e015}";
}

/// Size of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Wide,
    /// A phone, 360 pixels wide.
    Narrow,
    /// The wide one at a zoom of 200 %.
    Zoomed,
}

/// Running browser. Drop ends it.
pub(crate) struct Browser {
    client: reqwest::Client,
    /// URL of the session.
    session: String,
    _driver: Process,
    _folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

/// Starts a driver, and returns its port. It takes a free IPv4 port, and ends if the same one is in use for IPv6.
fn driver(folder: &Path) -> (Child, u16) {
    for _ in 0..10 {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env("TMPDIR", folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME");
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut port = lines.filter_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        if let Some(port) = port.next() {
            return (child, port);
        }
        child.wait().unwrap();
    }
    panic!("chromedriver does not start");
}

impl Browser {
    /// Starts a browser. `None` if the machine has none.
    pub(crate) async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if let Some(missing) =
            ["chromedriver", "npm"].iter().find(|program| olm_require::find(program).is_none())
        {
            let advice = "install the Debian packages chromium, chromium-driver and npm";
            olm_require::report(Need::Browser, &format!("there is no {missing}: {advice}"));
            return None;
        }
        let turn = BROWSERS.acquire().await.unwrap();
        let (child, port) = driver(folder.path());
        // The client needs TLS, although the driver is on this machine.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        let session = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { client, session, _driver: Process(child), _folder: folder, _turn: turn };
        let capabilities = json!({"alwaysMatch": {
            "goog:chromeOptions": {"args": ARGUMENTS},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": DEADLINE.as_millis() as u64},
        }});
        let session = browser.post("", json!({"capabilities": capabilities})).await;
        browser.session += &format!("/{}", session["sessionId"].as_str().unwrap());
        browser.screen(Screen::Wide).await;
        browser.media("screen", "light").await;
        Some(browser)
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, String> {
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
        match answer["value"]["error"].is_string() {
            true => Err(answer["value"].to_string()),
            false => Ok(answer["value"].take()),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let sent = self.send(Method::POST, path, Some(body.clone())).await;
        sent.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    pub(crate) async fn quit(self) {
        self.send(Method::DELETE, "", None).await.unwrap();
    }

    /// Opens an address, and waits for its page.
    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// Goes back in the history.
    pub(crate) async fn back(&self) {
        self.post("/back", json!({})).await;
    }

    /// Result of the body of a JavaScript function.
    pub(crate) async fn run(&self, script: &str, arguments: Value) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": arguments})).await
    }

    /// Value of a JavaScript expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression};"), json!([])).await
    }

    /// Waits until a JavaScript expression is true on a page that is loaded with its styles.
    pub(crate) async fn until(&self, condition: &str) {
        let script = format!("return document.readyState === 'complete' && !!({condition});");
        let body = json!({"script": script, "args": []});
        // Fails while a new page is loaded.
        let holds = eventually(condition, async || {
            let result = self.send(Method::POST, "/execute/sync", Some(body.clone())).await;
            (result == Ok(json!(true))).then_some(())
        });
        if tokio::time::timeout(LIMIT, holds).await.is_err() {
            let page = self.value("location.href + '\\n' + document.body.innerText").await;
            panic!("{condition} does not become true: {page}");
        }
    }

    /// Texts of the elements.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script =
            "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent.trim());";
        serde_json::from_value(self.run(script, json!([selector])).await).unwrap()
    }

    async fn element(&self, selector: &str) -> Value {
        self.post("/element", json!({"using": "css selector", "value": selector})).await
    }

    /// Clicks at the middle of an element, which must not be covered.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{}/click", element[ELEMENT].as_str().unwrap()), json!({})).await;
    }

    /// Chooses the option of a select that begins with `text`, by arrow keys. A click of the driver sends other events
    /// than a user.
    pub(crate) async fn choose(&self, selector: &str, text: &str) {
        let script = "const select = document.querySelector(arguments[0]);
            select.focus();
            return [...select.options].findIndex(option => option.text.startsWith(arguments[1])) - select.selectedIndex;";
        let steps = self.run(script, json!([selector, text])).await.as_i64().unwrap();
        let arrow = if steps > 0 { key::DOWN } else { key::UP };
        self.keys(&arrow.repeat(steps.unsigned_abs() as usize)).await;
    }

    /// Moves the pointer over an element.
    pub(crate) async fn hover(&self, selector: &str) {
        let element = self.element(selector).await;
        let step = json!({"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": element});
        let pointer = json!({"type": "pointer", "id": "mouse", "actions": [step]});
        self.post("/actions", json!({"actions": [pointer]})).await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(crate) async fn keys(&self, keys: &str) {
        let press = |key: char| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}));
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}))
            .await;
    }

    /// Command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    pub(crate) async fn screen(&self, screen: Screen) {
        let (width, height, scale) = match screen {
            Screen::Wide => (1200, 720, 1),
            Screen::Narrow => (360, 780, 1),
            Screen::Zoomed => (600, 360, 2),
        };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": screen == Screen::Narrow});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Sets the medium, `screen` or `print`, and the color scheme that the user prefers.
    pub(crate) async fn media(&self, medium: &str, scheme: &str) {
        // The driver does not wait for smooth scrolling.
        let features = json!([{"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"media": medium, "features": features})).await;
    }

    /// Records since the last call: `browser` has messages of the console, `performance` has events of DevTools.
    pub(crate) async fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.post("/se/log", json!({"type": kind})).await;
        log.as_array().unwrap().clone()
    }

    /// Issues that axe-core calls serious or critical: rule, and the elements.
    pub(crate) async fn serious_issues(&self, axe: &str) -> Value {
        self.run(axe, json!([])).await;
        let script = "const done = arguments[0];
            axe.run({ resultTypes: ['violations'], iframes: false }).then(found => done(found.violations
                .filter(issue => ['serious', 'critical'].includes(issue.impact))
                .map(issue => [issue.id, issue.nodes.map(node => node.html + ' ' + node.failureSummary)])));";
        self.post("/execute/async", json!({"script": script, "args": []})).await
    }
}
