//go:build !linux && !darwin && !freebsd

package agent

// lockDir keeps nobody out here: there is no lock that is gone with its process.
func lockDir(string) (unlock func(), err error) { return func() {}, nil }
