package main

import "embed"

// sources are what packages have beside harp: scripts and examples.
//
//go:embed files
var sources embed.FS
