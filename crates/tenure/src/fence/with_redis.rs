//! Fences on Redis: a script that looks at the token and carries out your commands, in one step.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, ErrorKind, FromRedisValue, Pipeline, Script, ServerErrorKind, Value};

use super::{DatabaseError, FenceClaim, FenceError, FenceRow};
use crate::{Lead, Token};

const SCRIPT: &str = include_str!("fence.lua");
static HASHED: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

impl Lead {
    /// Carries out `commands` on Redis if no newer leader has been at `resource`, and raises its fence, all in one
    /// step. Gives the answers of all of them.
    ///
    /// The fence is the hash `tenure_fence:{RESOURCE}`. In a Redis Cluster let the keys of your commands have the hash tag
    /// `{RESOURCE}` too. If one of the commands fails, those before it have been carried out, as in `MULTI`. A
    /// server that evicts keys, or loses writes, can forget fences.
    ///
    /// # Errors
    /// [`FenceError`]; except for [`FenceError::Database`], none of the commands has been carried out.
    pub async fn fence_redis<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        resource: &str,
        commands: &Pipeline,
    ) -> Result<T, FenceError> {
        let claim = self.claim(resource)?;
        let failed = |cause: DatabaseError| FenceError::database(resource, cause);
        let mut reply = call(false, &claim, commands).query_async(connection).await;
        if matches!(&reply, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            reply = call(true, &claim, commands).query_async(connection).await;
        }
        let (verdict, answers): (String, Value) = reply.map_err(|error| failed(error.into()))?;
        let text = || String::from_redis_value_ref(&answers).unwrap_or_default();
        match verdict.as_str() {
            "done" => redis::from_redis_value(answers).map_err(|error| failed(error.into())),
            "role" => Err(refused(&claim, &FenceRow { role: text(), token: claim.token })),
            _ => {
                let token =
                    Token::new(text().parse().map_err(|_| failed("the fence holds no number".into()))?);
                Err(refused(&claim, &FenceRow { role: claim.role.to_string(), token }))
            }
        }
    }
}

/// The script, by its hash or whole: `SCRIPT LOAD` would need another right.
fn call(whole: bool, claim: &FenceClaim<'_>, commands: &Pipeline) -> Cmd {
    let mut call = redis::cmd(if whole { "EVAL" } else { "EVALSHA" });
    call.arg(if whole { SCRIPT } else { HASHED.get_hash() });
    call.arg(1).arg(format!("tenure_fence:{{{}}}", claim.resource));
    call.arg(claim.role.as_str()).arg(claim.token.get());
    for command in commands.cmd_iter() {
        call.arg(command.args_iter().len());
        for word in command.args_iter() {
            match word {
                Arg::Simple(word) => call.arg(word),
                // A cursor that begins.
                _ => call.arg(0),
            };
        }
    }
    call
}

/// The script refuses what would be refused here.
fn refused(claim: &FenceClaim<'_>, row: &FenceRow) -> FenceError {
    claim.check(row).expect_err("the script and this judge alike")
}
