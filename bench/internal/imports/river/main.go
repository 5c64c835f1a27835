// Command river imports river with its PostgreSQL driver and does nothing.
package main

import (
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/riverdriver/riverpgxv5"
)

func main() {}
