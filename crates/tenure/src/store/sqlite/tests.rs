//! What only a look inside can provoke.
