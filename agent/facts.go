package agent

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
)

// DefaultFacts returns what the system says of itself, as far as it does: os, arch,
// hostname, kernel, cpus, memory (bytes), booted (a time) and agent (its software).
// It returns no error.
func DefaultFacts(context.Context) (map[string]any, error) {
	facts := map[string]any{
		"os":    runtime.GOOS,
		"arch":  runtime.GOARCH,
		"cpus":  runtime.NumCPU(),
		"agent": harp.Software,
	}
	if name, err := os.Hostname(); err == nil {
		facts["hostname"] = name
	}
	if kernel := firstLine("/proc/sys/kernel/osrelease"); kernel != "" {
		facts["kernel"] = kernel
	}
	if kib, ok := numberIn("/proc/meminfo", "MemTotal:"); ok {
		facts["memory"] = kib << 10
	}
	if s, ok := numberIn("/proc/stat", "btime"); ok {
		facts["booted"] = time.Unix(s, 0).UTC()
	}
	return facts, nil
}

// bootID changes with each boot; empty where the system has none.
var bootID = proc.BootID

// bootedSince reports whether the machine has booted since it had a boot id.
func bootedSince(id string) bool {
	now := bootID()
	return id != "" && now != "" && now != id
}

// firstLine returns the first line of a file, empty if there is none.
func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// numberIn returns the number after a word at the beginning of a line.
func numberIn(path, word string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == word {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
