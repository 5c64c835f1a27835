package harp

// Version is the version of this library and of the programs made of it.
const Version = "0.1.0"
