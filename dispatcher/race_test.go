//go:build race

package dispatcher_test

// raceDetector tells tests that measure by the amount of work.
const raceDetector = true
