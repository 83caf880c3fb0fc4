//! The tests of stores whose servers few machines have. They are here, and not with the library, so that `./test` needs none of
//! those servers: `./test --stores` installs them and runs these.
