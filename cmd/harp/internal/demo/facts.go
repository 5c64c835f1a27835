package demo

import (
	"context"
	"os"
	"runtime"

	"github.com/harpcaller/harp"
)

// HostFacts tells what the machine is and how it does.
var HostFacts = harp.NewProc[struct{}, Facts]("host.facts",
	"Report the kernel, CPU, memory, disks and load of the host",
	"Read from the system when called. Sizes are in bytes. What the system does not tell is left out.")

// Facts is what HostFacts returns.
type Facts struct {
	Hostname string    `json:"hostname"`
	OS       string    `json:"os"`
	Kernel   Kernel    `json:"kernel"`
	CPU      CPU       `json:"cpu"`
	Memory   Memory    `json:"memory"`
	Disks    []Disk    `json:"disks"`
	Load     []float64 `json:"load"`   // of 1, 5 and 15 minutes
	Uptime   float64   `json:"uptime"` // seconds
}

// Kernel is the running kernel.
type Kernel struct {
	Name    string `json:"name"`
	Release string `json:"release,omitempty"`
	Machine string `json:"machine"`
}

// CPU is what computes.
type CPU struct {
	Count int    `json:"count"`
	Model string `json:"model,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	Total     int64 `json:"total,omitempty"`
	Available int64 `json:"available,omitempty"`
	SwapTotal int64 `json:"swap_total,omitempty"`
	SwapFree  int64 `json:"swap_free,omitempty"`
}

// Disk is a file system that is mounted from a device.
type Disk struct {
	Mount  string `json:"mount"`
	Device string `json:"device"`
	Type   string `json:"type"`
	Total  uint64 `json:"total"`
	Free   uint64 `json:"free"` // to those who are not root
}

func hostFacts(ctx context.Context, _ struct{}) (Facts, error) {
	name, err := os.Hostname()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Hostname: name, OS: runtime.GOOS,
		Kernel: Kernel{Name: runtime.GOOS, Machine: runtime.GOARCH},
		CPU:    CPU{Count: runtime.NumCPU()},
		Disks:  []Disk{}, Load: []float64{},
	}
	readSystem(&f)
	return f, context.Cause(ctx)
}
