//! A browser of its own: headless Chromium, driven as a person would, killed with the test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_agent::ui::ITEMS;
use tenure_torture::servers::{Server, free_port, program};

use crate::kit::PATIENCE;

/// The browser, with the page in it.
pub(crate) struct Browser {
    page: Client,
    driver: Driver,
}

/// What drives it. Whatever it started has its directory in the command line.
struct Driver {
    server: Server,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let dir = self.server.dir().display().to_string();
        self.server.signal(Signal::KILL);
        for pid in processes_with(&dir) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn processes_with(text: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    };
    pids.filter(has).filter_map(Pid::from_raw).collect()
}

/// How large its window is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Desktop,
    Phone,
}

impl Browser {
    /// Opens the page of the agent that listens there.
    pub(crate) async fn open(url: &str, size: Size) -> Self {
        let driver = tokio::task::spawn_blocking(Driver::start).await.unwrap();
        let profile = driver.server.dir().join("profile");
        let mut options = json!({ "binary": program("chromium", "chromium", &[]), "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--hide-scrollbars", "--window-size=1280,860",
            format!("--user-data-dir={}", profile.display()),
        ]});
        if size == Size::Phone {
            let metrics = json!({ "width": 390, "height": 780, "pixelRatio": 1.0 });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let mut wanted = serde_json::Map::new();
        wanted.insert("goog:chromeOptions".to_owned(), options);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let page = builder.capabilities(wanted).connect(&format!("http://{}", driver.server.address())).await;
        let browser = Self { page: page.unwrap(), driver };
        browser.page.goto(url).await.unwrap();
        browser
    }

    /// Closes it in peace; a test that fails leaves it to be killed.
    pub(crate) async fn close(self) {
        let _ = self.page.close().await;
        drop(self.driver);
    }

    /// Runs a script in the page.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let ran = self.page.execute(script, Vec::new()).await;
        ran.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let began = Instant::now();
        while self.run(&format!("return Boolean({expression})")).await != Value::Bool(true) {
            if began.elapsed() > PATIENCE {
                let seen = self.run("return document.body.innerText").await;
                self.picture("failed").await;
                panic!("waited in vain: {expression}; the page says\n{}", seen.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until an item is in sight and its text contains that.
    pub(crate) async fn says(&self, item: &str, text: &str) {
        let selector = known(item);
        let shown = "e.checkVisibility() && (e.innerText || e.value || '')";
        let text = json!(text);
        self.until(&format!(
            "[...document.querySelectorAll({selector})].some((e) => ({shown} || '').includes({text}) && e.checkVisibility())"
        ))
        .await;
    }

    /// Waits until an item has said that, be it out of sight again.
    pub(crate) async fn said(&self, item: &str, text: &str) {
        let (selector, text) = (known(item), json!(text));
        self.until(&format!("document.querySelector({selector}).textContent.includes({text})")).await;
    }

    /// Waits until no such item is in sight.
    pub(crate) async fn hides(&self, item: &str) {
        let selector = known(item);
        self.until(&format!("![...document.querySelectorAll({selector})].some((e) => e.checkVisibility())"))
            .await;
    }

    /// The first such item in sight.
    pub(crate) async fn item(&self, item: &str) -> Element {
        self.says(item, "").await;
        let selector = format!("[data-item=\"{item}\"]");
        for found in self.page.find_all(Locator::Css(&selector)).await.unwrap() {
            if found.is_displayed().await.unwrap_or(false) {
                return found;
            }
        }
        panic!("{item} is not in sight")
    }

    /// Clicks an item, as soon as that is possible.
    pub(crate) async fn click(&self, item: &str) {
        let began = Instant::now();
        while let Err(error) = self.item(item).await.click().await {
            assert!(began.elapsed() < PATIENCE, "{item} cannot be clicked: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Types into an item, after what is there.
    pub(crate) async fn types(&self, item: &str, text: &str) {
        self.item(item).await.send_keys(text).await.unwrap();
    }

    /// Keeps a picture under target/screenshots.
    pub(crate) async fn picture(&self, name: &str) {
        let folder = screenshots();
        std::fs::create_dir_all(&folder).unwrap();
        let png = self.page.screenshot().await.unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

impl Driver {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let mut command = Command::new(program("chromedriver", "chromium-driver", &[]));
        command.arg(format!("--port={port}")).env("HOME", dir.path()).env("TMPDIR", dir.path());
        let ready = |address| std::net::TcpStream::connect(address).is_ok();
        Self { server: Server::start("chromedriver", dir, port, &mut command, ready) }
    }
}

/// The selector of an item of the page, as a script writes it; one that is not listed is a mistake here.
fn known(item: &str) -> String {
    let listed: BTreeSet<&str> = ITEMS.iter().map(|(name, _)| *name).collect();
    assert!(listed.contains(item), "{item} is not an item of the page");
    json!(format!("[data-item=\"{item}\"]")).to_string()
}

fn screenshots() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("screenshots")
}
