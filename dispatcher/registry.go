package dispatcher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// HostSpec is one entry of the hosts registry.
type HostSpec struct {
	Name    string            `json:"name"`
	Address string            `json:"address"` // host:port; the port defaults to 7442. Empty: the host dials in
	Labels  map[string]string `json:"labels,omitempty"`
}

// HostSource is where the hosts registry comes from.
type HostSource interface {
	// Hosts returns all hosts; they replace those it returned before. An error
	// keeps the old ones. It must return when ctx ends, which is after 2 minutes: no
	// other refresh begins before it has.
	Hosts(ctx context.Context) ([]HostSpec, error)
}

// StaticHosts is a registry that does not change.
type StaticHosts []HostSpec

// Hosts returns s, and never an error.
func (s StaticHosts) Hosts(context.Context) ([]HostSpec, error) { return s, nil }

// HostScript is a registry filled by a program that prints one JSON object a line:
// {"name": "web01", "address": "10.0.0.1:7442", "labels": {"role": "web"}}. Empty lines
// are passed over, and are all that one prints that knows of no host: a file that has lost its
// content has none. A key that is not known is refused, since it may be a misspelt one.
type HostScript struct {
	Command []string // program and arguments
}

// Hosts runs the program, until ctx ends: then it is killed with what it has started.
// Errors: that it could not be run, ended with another code than 0, printed nothing, more than 64
// MiB, or a line that is no host; the error names the line. ctx's.
func (s HostScript) Hosts(ctx context.Context) ([]HostSpec, error) {
	if len(s.Command) == 0 {
		return nil, &harp.FieldError{Field: "hosts", Message: "no command"}
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	killWithChildren(cmd)
	cmd.WaitDelay = time.Second
	out, said := limitedBuffer{most: maxRegistry, refuses: true}, limitedBuffer{most: maxSaid}
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case out.full:
		err = fmt.Errorf("prints more than %d MiB", maxRegistry>>20)
	case err == nil && len(out.kept) == 0:
		err = errors.New("prints nothing; an empty line says that there are no hosts")
	}
	if err != nil {
		return nil, fmt.Errorf("hosts script %s: %w: %s", s.Command[0], err, firstLine(string(said.kept)))
	}
	return parseHosts(out.kept)
}

const maxSaid = 64 << 10 // bytes of what a hosts script says on stderr that are kept

// limitedBuffer keeps the first bytes that are written to it. It is no bytes.Buffer with a
// limit, as that reads for itself from what it is to copy.
type limitedBuffer struct {
	kept    []byte
	most    int
	refuses bool // what is beyond
	full    bool // more was written
}

// Write implements io.Writer. Errors: io.ErrShortWrite for what it refuses.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.most-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	b.full = b.full || n < len(p)
	if b.full && b.refuses {
		return n, io.ErrShortWrite
	}
	return len(p), nil
}

func firstLine(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return line
}

func parseHosts(out []byte) ([]HostSpec, error) {
	var specs []HostSpec
	lines := bufio.NewScanner(bytes.NewReader(out))
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		spec, err := parseHost(line)
		if err != nil {
			return nil, fmt.Errorf("hosts script, line %d: %w", n, err)
		}
		specs = append(specs, spec)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("hosts script: %w", err)
	}
	return specs, nil
}

// maxHostKey is how many bytes of a key that is not known an error quotes.
const maxHostKey = 64

// parseHost reads one host. Errors: *harp.FieldError for a key that is not known; json's.
func parseHost(line []byte) (HostSpec, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(line, &keys); err != nil {
		return HostSpec{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(hostKeys, key) {
			return HostSpec{}, &harp.FieldError{Field: text.Shorten(key, maxHostKey, "…"), Message: "is unknown; available: " + strings.Join(hostKeys, ", ")}
		}
	}
	var spec HostSpec
	err := json.Unmarshal(line, &spec)
	return spec, err
}

// hostKeys are those of a line that a hosts script prints.
var hostKeys = []string{"name", "address", "labels"}

// checkHosts refuses a registry with an entry that cannot be; names are unique.
func checkHosts(specs []HostSpec) error {
	seen := map[string]bool{}
	for i, s := range specs {
		field := fmt.Sprintf("hosts[%d]", i)
		if err := transport.CheckName(s.Name); err != nil {
			return &harp.FieldError{Field: field + ".name", Message: err.Error()}
		}
		if seen[s.Name] {
			return &harp.FieldError{Field: field + ".name", Message: s.Name + " is listed twice"}
		}
		seen[s.Name] = true
		if s.Address == "" {
			continue
		}
		if !canDial(s.Address) {
			return &harp.FieldError{Field: field + ".address", Message: s.Address + " is not host or host:port"}
		}
	}
	return nil
}

func canDial(addr string) bool {
	host, port, err := net.SplitHostPort(wire.WithPort(addr, wire.AgentPort))
	if err != nil || host == "" {
		return false
	}
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return false
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// registry is what is known of the hosts registry and who dials its hosts.
type registry struct {
	stored []byte        // the registry as it was last stored; belongs to the loop
	asked  chan struct{} // has a value when somebody has asked for a refresh

	mu       sync.Mutex
	source   HostSource // nil: there never was one
	err      error      // of the last refresh
	next     *refresh   // guarded by mu: that was asked for and has not begun; nil: none
	diallers map[string]*dialer
}

// refresh is one reading of the registry, for all who asked before it began.
type refresh struct {
	done  chan struct{} // closed when it is over
	hosts int           // set before
	err   error         // set before
}

// dialer is one host that the dispatcher dials.
type dialer struct {
	addr string
	stop context.CancelFunc
}

func (r *registry) lastError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// loadRegistry takes over the registry as it was last read. One that does not
// change is taken as it is: a mistake in it is one of the configuration.
func (d *Dispatcher) loadRegistry(ctx context.Context) error {
	d.registry.source = d.cfg.Hosts
	if d.cfg.Hosts == nil {
		return nil
	}
	d.hosts.unread.Store(true)
	if specs, static := d.cfg.Hosts.(StaticHosts); static {
		if err := checkHosts(specs); err != nil {
			return err
		}
		d.setRegistry(specs)
		return nil
	}
	specs, err := d.storedRegistry(ctx)
	switch {
	case errors.Is(err, harp.ErrNotFound):
		return nil
	case errors.Is(err, store.ErrDamaged):
		d.log.Error("stored hosts registry cannot be read: its hosts are not known until its source is", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("stored hosts registry: %w", err)
	}
	d.setRegistry(specs)
	return nil
}

// registryLoop reads the registry at start, from time to time and when it is asked to,
// and ends when all that it dials has.
func (d *Dispatcher) registryLoop() {
	if d.cfg.Hosts == nil {
		return
	}
	tick := time.NewTicker(d.cfg.RefreshHosts)
	defer tick.Stop()
	for d.ctx.Err() == nil {
		r := d.registry.beginRefresh()
		r.hosts, r.err = d.readRegistry()
		d.registry.endRefresh(r)
		if r.err != nil && d.ctx.Err() == nil {
			d.log.Error("hosts registry kept as it was", "err", r.err)
		}
		select {
		case <-tick.C:
		case <-d.registry.asked:
		case <-d.ctx.Done():
		}
	}
}

// ReplaceHosts makes source the hosts registry and reads it, as [Config.Hosts] is; nil is a
// registry without hosts. It returns how many hosts there are. When source cannot be read,
// the hosts stay as they were, and it is read again later. Errors: harp.ErrRefused when the
// dispatcher was opened without a registry, harp.ErrUnavailable when source cannot be read,
// harp.ErrClosed, ctx's.
func (d *Dispatcher) ReplaceHosts(ctx context.Context, source HostSource) (int, error) {
	if source == nil {
		source = StaticHosts(nil)
	}
	if d.cfg.Hosts != nil {
		d.registry.mu.Lock()
		d.registry.source = source
		d.registry.mu.Unlock()
	}
	return d.Caller().Hosts().Refresh(ctx)
}

// refresh has the registry read anew. It is read, and what it says taken over, whether
// whoever asked waits or not.
func (d *Dispatcher) refresh(ctx context.Context) (int, error) {
	if d.cfg.Hosts == nil {
		return 0, failures.New("refused", "this dispatcher has no hosts registry").Err()
	}
	r := d.registry.requestRefresh()
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if r.err != nil {
		return 0, failures.New("unavailable", "hosts registry: "+r.err.Error()).Err()
	}
	return r.hosts, nil
}

// requestRefresh returns the next refresh to begin: one that is under way may have read before what
// has changed.
func (r *registry) requestRefresh() *refresh {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &refresh{done: make(chan struct{})}
		select {
		case r.asked <- struct{}{}:
		default:
		}
	}
	return r.next
}

// beginRefresh returns the refresh that begins now, asked for or not.
func (r *registry) beginRefresh() *refresh {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.next
	if begun == nil {
		return &refresh{done: make(chan struct{})}
	}
	r.next = nil
	select {
	case <-r.asked: // else the loop was at it before it was asked
	default:
	}
	return begun
}

// endRefresh answers all that wait for a refresh.
func (r *registry) endRefresh(did *refresh) {
	r.mu.Lock()
	r.err = did.err
	r.mu.Unlock()
	close(did.done)
}

// registryTime is how long the source of the registry may take.
const registryTime = 2 * time.Minute

var errRegistryTime = fmt.Errorf("has not ended after %v", registryTime)

// readRegistry asks the source, stores what it says, and replaces the old registry whole,
// or keeps it. It returns how many hosts there are.
func (d *Dispatcher) readRegistry() (int, error) {
	asking, cancel := context.WithTimeoutCause(d.ctx, registryTime, errRegistryTime)
	defer cancel()
	d.registry.mu.Lock()
	source := d.registry.source
	d.registry.mu.Unlock()
	specs, err := source.Hosts(asking)
	if err == nil {
		err = checkHosts(specs)
	}
	if err == nil {
		err = d.storeRegistry(d.ctx, specs)
	}
	if err != nil {
		return 0, err
	}
	d.setRegistry(specs)
	return len(specs), nil
}

// setRegistry makes specs the registry: hosts that are not in it are no longer
// dialled, new ones and those that moved are. Sessions that are open stay.
func (d *Dispatcher) setRegistry(specs []HostSpec) {
	defer d.reviewAllHolds()
	r := &d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	d.hosts.list(specs)
	gone := maps.Clone(r.diallers)
	for _, spec := range specs {
		if spec.Address == "" {
			continue
		}
		if old := gone[spec.Name]; old != nil && old.addr == spec.Address {
			delete(gone, spec.Name)
			continue
		}
		if old := r.diallers[spec.Name]; old != nil {
			old.stop()
		}
		delete(gone, spec.Name)
		d.dialLocked(spec)
	}
	for name, old := range gone {
		old.stop()
		delete(r.diallers, name)
	}
}

// dialLocked starts dialling a host.
func (d *Dispatcher) dialLocked(spec HostSpec) {
	if d.registry.diallers == nil {
		d.registry.diallers = map[string]*dialer{}
	}
	ctx, stop := context.WithCancel(d.ctx)
	d.registry.diallers[spec.Name] = &dialer{addr: spec.Address, stop: stop}
	d.loops.Go(func() { d.dialLoop(ctx, spec) })
}
