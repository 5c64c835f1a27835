//go:build race

package needs

// RaceDetector tells tests that measure by the amount of work.
const RaceDetector = true
