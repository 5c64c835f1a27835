package demo

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readSystem fills in what Linux says in /proc. What cannot be read stays empty.
func readSystem(f *Facts) {
	readKernel(&f.Kernel)
	f.CPU.Model = valueOf(readText("/proc/cpuinfo"), "model name")
	memory := readText("/proc/meminfo")
	f.Memory = Memory{
		Total:     kibibytes(valueOf(memory, "MemTotal")),
		Available: kibibytes(valueOf(memory, "MemAvailable")),
		SwapTotal: kibibytes(valueOf(memory, "SwapTotal")),
		SwapFree:  kibibytes(valueOf(memory, "SwapFree")),
	}
	f.Disks = disks(readText("/proc/self/mounts"))
	if load := numbers(readText("/proc/loadavg")); len(load) >= 3 {
		f.Load = load[:3]
	}
	if up := numbers(readText("/proc/uptime")); len(up) > 0 {
		f.Uptime = up[0]
	}
}

func readKernel(k *Kernel) {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		k.Name = unix.ByteSliceToString(u.Sysname[:])
		k.Release = unix.ByteSliceToString(u.Release[:])
		k.Machine = unix.ByteSliceToString(u.Machine[:])
	}
}

func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// valueOf returns what stands behind "name:" in the first line that has it.
func valueOf(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func kibibytes(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// numbers returns the numbers at the beginning of a text.
func numbers(text string) []float64 {
	var list []float64
	for _, word := range strings.Fields(text) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			break
		}
		list = append(list, n)
	}
	return list
}

// disks are the file systems of a mount table that come from a device, each device
// once.
func disks(mounts string) []Disk {
	list, seen := []Disk{}, map[string]bool{}
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !isDisk(fields[0], fields[1]) || seen[fields[0]] {
			continue
		}
		seen[fields[0]] = true
		mount := unescape(fields[1])
		var s unix.Statfs_t
		if unix.Statfs(mount, &s) != nil {
			continue
		}
		size := uint64(s.Bsize)
		list = append(list, Disk{
			Mount: mount, Device: unescape(fields[0]), Type: fields[2],
			Total: s.Blocks * size, Free: s.Bavail * size,
		})
	}
	return list
}

// isDisk tells disks from the kernel's own file systems; in a container the root
// may be an overlay.
func isDisk(device, mount string) bool { return strings.HasPrefix(device, "/dev/") || mount == "/" }

// unescape reads the octal escapes of a mount table: \040 is a space.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
