//go:build race

package harptest_test

const raceDetector = true
