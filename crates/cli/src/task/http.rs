//! An HTTP call as a scheduled run. The token is in a header, so that whoever is called can refuse a former leader's.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use tenure::schedule::{Done, Failed, HttpSettings, RunContext, Runner};

use crate::output::time::Stamp;

/// A call without a timeout of its own has this long.
const LONGEST: Duration = Duration::from_secs(300);

/// Calls a URL for each tick, with `tenure-task`, `tenure-tick`, `tenure-attempt`, `tenure-token`, `tenure-node` and
/// `tenure-role` in its headers. Any 2xx is a success; 4xx other than 408 and 429 is not tried again.
#[derive(Debug, Clone)]
pub struct HttpRunner {
    settings: HttpSettings,
}

impl HttpRunner {
    /// A call.
    #[must_use]
    pub fn new(settings: HttpSettings) -> Self {
        Self { settings }
    }

    fn headers(&self, run: &RunContext) -> Result<HeaderMap, Failed> {
        let role = run.lead().map(|lead| lead.role().to_string());
        let ours = [
            ("tenure-task", Some(run.task().to_string())),
            ("tenure-tick", Some(Stamp(run.tick()).to_string())),
            ("tenure-attempt", Some(run.attempt().to_string())),
            ("tenure-token", Some(run.token().to_string())),
            ("tenure-node", Some(run.node().name().to_string())),
            ("tenure-role", role),
        ];
        let theirs = self.settings.headers.iter().map(|(name, value)| (name.as_str(), Some(value.clone())));
        let mut headers = HeaderMap::new();
        for (name, value) in theirs.chain(ours) {
            let Some(value) = value else { continue };
            let (name, value) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(hopeless("a header cannot be sent"));
            };
            headers.insert(name, value);
        }
        Ok(headers)
    }

    async fn call(&self, run: &RunContext) -> Result<Done, Failed> {
        let method: Method = self.settings.method.parse().map_err(|_| hopeless(NO_METHOD))?;
        let request = client()?.request(method, &self.settings.url).headers(self.headers(run)?);
        // The last question before anything leaves this process.
        if !run.check() {
            return Err(hopeless("leadership was lost before the call"));
        }
        let status = call(request.body(self.settings.body.clone())).await?;
        let exit = Some(i32::from(status.as_u16()));
        if status.is_success() {
            return Ok(Done { exit });
        }
        let again = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        let hopeless = status.is_client_error() && !again;
        Err(Failed { why: format!("the answer was {status}"), exit, hopeless })
    }
}

impl Runner for HttpRunner {
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<Done, Failed>> {
        let this = self.clone();
        async move { this.call(&run).await }.boxed()
    }
}

const NO_METHOD: &str = "the method is none that HTTP knows";

/// What calls.
pub(crate) fn client() -> Result<Client, reqwest::Error> {
    // Only the first provider counts, and there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().timeout(LONGEST).build()
}

/// The status of the answer; an error does not tell the URL, which may hold a secret.
pub(crate) async fn call(request: RequestBuilder) -> Result<StatusCode, reqwest::Error> {
    request.send().await.map(|answer| answer.status()).map_err(reqwest::Error::without_url)
}

/// Whether a URL can be called at all.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let fits = |url: &Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    match Url::parse(url) {
        Ok(url) if fits(&url) => Ok(()),
        _ => Err("it is not a URL such as http://127.0.0.1:8080/path".to_owned()),
    }
}

/// Whether the rest of a call can be sent; if not, which key is to blame, and why.
pub(crate) fn check_call(settings: &HttpSettings) -> Result<(), (&'static str, String)> {
    settings.method.parse::<Method>().map_err(|_| ("method", NO_METHOD.to_owned()))?;
    for (name, value) in &settings.headers {
        if name.parse::<HeaderName>().is_err() || value.parse::<HeaderValue>().is_err() {
            return Err(("headers", format!("the header {name:?} cannot be sent")));
        }
    }
    Ok(())
}

fn hopeless(why: &str) -> Failed {
    Failed { why: why.to_owned(), exit: None, hopeless: true }
}
