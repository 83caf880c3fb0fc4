//! Who runs this process, for the audit.

/// Who asks: `user@host`.
#[must_use]
pub fn whoami() -> String {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let named = named.chain(account(rustix::process::getuid().as_raw())).find(|name| !name.is_empty());
    let user = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// The name of a user's account, where the machine itself knows it.
#[must_use]
pub fn account(user: u32) -> Option<String> {
    let uid = user.to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = accounts.lines().map(|line| line.split(':'));
    fields.find_map(|mut line| {
        let name = line.next()?;
        (line.nth(1)? == uid).then(|| name.to_owned())
    })
}
