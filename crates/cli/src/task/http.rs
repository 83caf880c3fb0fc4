//! An HTTP call as a scheduled run. The token is in a header, so that whoever is called can refuse a former leader's.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, StatusCode};
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
        let method: Method =
            self.settings.method.parse().map_err(|_| hopeless("the method is none that HTTP knows"))?;
        // Only the first provider counts, and there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().timeout(LONGEST).build()?;
        let request = client.request(method, &self.settings.url).headers(self.headers(run)?);
        // The last question before anything leaves this process.
        if !run.check() {
            return Err(hopeless("leadership was lost before the call"));
        }
        let answer = request.body(self.settings.body.clone()).send().await;
        let status = answer.map_err(|error| Failed::from(error.without_url()))?.status();
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

fn hopeless(why: &str) -> Failed {
    Failed { why: why.to_owned(), exit: None, hopeless: true }
}
