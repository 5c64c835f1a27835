package config

//go:generate go run ./gen ../../../../docs/configuration.md
