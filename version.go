package harp

// Version is the version of this library and of the programs made of it.
const Version = "0.1.0"

// Software is what the programs of harp say of themselves to each other.
const Software = "harp/" + Version
