package agent

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/version"
)

// DefaultFacts returns what the system says of itself, as far as it does: os, arch,
// distribution and distribution_version (as /etc/os-release has them: debian, 12), hostname,
// addresses (texts; not those that hold on this machine or one link only), kernel, cpus,
// memory (bytes), booted (a time) and agent (its software). It returns no error.
func DefaultFacts(context.Context) (map[string]any, error) {
	facts := map[string]any{
		"os":    runtime.GOOS,
		"arch":  runtime.GOARCH,
		"cpus":  runtime.NumCPU(),
		"agent": version.Software(),
	}
	if name, err := os.Hostname(); err == nil {
		facts["hostname"] = name
	}
	if addresses := globalAddresses(); len(addresses) > 0 {
		facts["addresses"] = addresses
	}
	release := readRelease("/etc/os-release")
	for key, fact := range map[string]string{"ID": "distribution", "VERSION_ID": "distribution_version"} {
		if release[key] != "" {
			facts[fact] = release[key]
		}
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

// globalAddresses returns the addresses of the network interfaces, sorted, up to 64.
func globalAddresses() []string {
	const most = 64
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var found []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			found = append(found, prefix.Addr())
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	var texts []string
	for _, addr := range found[:min(len(found), most)] {
		texts = append(texts, addr.String())
	}
	return texts
}

// readRelease returns the entries of a file as os-release(5) has it. Quotes around a value
// are taken away; what a shell would do to it besides is not done.
func readRelease(path string) map[string]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok {
			if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
				value = value[1 : n-1]
			}
			entries[key] = value
		}
	}
	return entries
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
