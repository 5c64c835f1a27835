// Command gen writes docs/configuration.md.
package main

import (
	"log"
	"os"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gen FILE")
	}
	if err := os.WriteFile(os.Args[1], []byte(config.Markdown()), 0o644); err != nil {
		log.Fatal(err)
	}
}
