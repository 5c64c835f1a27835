package lab

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Machine is where something was measured.
type Machine struct {
	OS    string        `json:"os"`
	Arch  string        `json:"arch"`
	CPUs  int           `json:"cpus"`
	Go    string        `json:"go"`
	Fsync time.Duration `json:"fsync"` // the median time of writing 4 KiB and syncing
}

// syncs is how many times the disk is tried.
const syncs = 101

// Describe looks at the machine and at the disk of a directory.
func Describe(dir string) (Machine, error) {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return m, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory goes later
	defer f.Close()
	took := make([]time.Duration, syncs)
	block := make([]byte, 4096)
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return m, err
		}
		if err := f.Sync(); err != nil {
			return m, err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	m.Fsync = took[len(took)/2]
	return m, nil
}
