// Command nothing imports nothing.
package main

func main() {}
