//! The program `shapewise`.

fn main() {}
