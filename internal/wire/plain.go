package wire

import (
	"github.com/harpcaller/harp/internal/pack"
	"github.com/harpcaller/harp/transport"
)

// The messages of every call are written and read here, key by key; all others, and
// what is unusual in these, by reflection. Both write the same bytes.

// slack is room for the keys and numbers of a message.
const slack = 96

// plainEncoder is a message that can be written here. It returns nil if it is unusual.
type plainEncoder interface{ encodePlain() []byte }

// plainDecoder is a message that can be read here, from valid bytes. It returns false
// if they are unusual, and the message is then as it was.
type plainDecoder interface{ decodePlain(r pack.Reader) bool }

// decodeOther reads a message that is not plain.
func decodeOther[M any](b []byte, m *M) error {
	var got M // not m, which then need not be in the heap
	err := Decode(b, &got)
	*m = got
	return err
}

func (m Request) encodePlain() []byte {
	return m.appendPlain(make([]byte, 0, slack+len(m.ID)+len(m.Host)+len(m.Procedure)+len(m.Args)+len(m.Queue)+len(m.Info)))
}

// appendPlain is encodePlain behind what is in b.
func (m *Request) appendPlain(b []byte) []byte {
	if len(m.Labels) > 0 || len(m.Needs) > 0 || m.Retry != nil {
		return nil
	}
	w := pack.Begin(b)
	w.Int("v", m.Version)
	w.Text("id", m.ID)
	w.Text("host", m.Host)
	w.Text("proc", m.Procedure)
	w.BytesOpt("args", m.Args)
	w.BytesOpt("queue", m.Queue)
	w.BytesOpt("info", m.Info)
	w.IntOpt("conc", m.Concurrency)
	w.IntOpt("prio", m.Priority)
	w.IntOpt("timeout", m.Timeout)
	w.IntOpt("maxexec", m.MaxExecTime)
	w.IntOpt("notbefore", m.NotBefore)
	w.IntOpt("expires", m.Expires)
	w.IntOpt("offwait", m.OfflineWait)
	w.TextOpt("whenoff", m.WhenOffline)
	w.TextOpt("trace", m.TraceParent)
	w.TextOpt("retryof", m.RetryOf)
	w.BoolOpt("dry", m.DryRun)
	w.TextOpt("idem", m.Key)
	w.IntOpt("idemttl", m.KeyTTL)
	return w.End()
}

// Encode is the function Encode, for who has a request at hand.
func (m *Request) Encode() []byte {
	if b := m.encodePlain(); b != nil {
		return b
	}
	return Encode(*m)
}

// Append appends what Encode returns to b.
func (m *Request) Append(b []byte) []byte {
	if plain := m.appendPlain(b); plain != nil {
		return plain
	}
	return append(b, Encode(*m)...)
}

// Decode is the function Decode, for who has a request at hand.
func (m *Request) Decode(b []byte) error {
	if transport.Validate(b, transport.ProtocolLimits) == nil && m.decodePlain(pack.NewReader(b)) {
		return nil
	}
	return decodeOther(b, m)
}

func (m *Request) decodePlain(r pack.Reader) bool {
	got := *m
	for range r.Map() {
		switch string(r.Text()) {
		case "v":
			got.Version = r.Int()
		case "id":
			got.ID = string(r.Text())
		case "host":
			got.Host = string(r.Text())
		case "proc":
			got.Procedure = string(r.Text())
		case "args":
			setBytes(&r, &got.Args)
		case "queue":
			setBytes(&r, &got.Queue)
		case "info":
			setBytes(&r, &got.Info)
		case "conc":
			got.Concurrency = r.Int()
		case "prio":
			got.Priority = r.Int()
		case "timeout":
			got.Timeout = r.Int()
		case "maxexec":
			got.MaxExecTime = r.Int()
		case "notbefore":
			got.NotBefore = r.Int()
		case "expires":
			got.Expires = r.Int()
		case "offwait":
			got.OfflineWait = r.Int()
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}

// take makes *m what was read, if all of it was.
func take[M any](r *pack.Reader, m *M, got M) bool {
	if r.Done() {
		*m = got
	}
	return r.Done()
}

// setBytes reads bytes into a field that has none.
func setBytes(r *pack.Reader, field *[]byte) {
	p := r.Own()
	if *field != nil || !r.OK() {
		r.Fail()
		return
	}
	*field = p
}

func (m Call) encodePlain() []byte {
	return m.appendPlain(make([]byte, 0, slack+len(m.Request)+len(m.Signature)+len(m.KeyID)))
}

// appendPlain is encodePlain behind what is in b.
func (m *Call) appendPlain(b []byte) []byte {
	if len(m.Needs) > 0 {
		return nil
	}
	w := pack.Begin(b)
	w.Bytes("req", m.Request)
	w.BytesOpt("sig", m.Signature)
	w.TextOpt("key", m.KeyID)
	w.Int("attempt", m.Attempt)
	w.IntOpt("fence", m.Fence)
	w.IntOpt("epoch", m.Epoch)
	w.Int("timeout", m.Timeout)
	w.Int("maxexec", m.MaxExecTime)
	w.IntOpt("left", m.Left)
	w.Int("window", m.Window)
	w.Key("who")
	w.B = m.Principal.append(w.B)
	return w.End()
}

// Append appends what Encode returns to b.
func (m *Call) Append(b []byte) []byte {
	if plain := m.appendPlain(b); plain != nil {
		return plain
	}
	return append(b, Encode(*m)...)
}

// DecodeBody is the function DecodeBody, for who has a call at hand, which keeps parts of
// the body.
func (m *Call) DecodeBody(b []byte) error {
	if m.decodePlain(pack.NewKeeper(b)) {
		return nil
	}
	return decodeOther(b, m)
}

func (p Principal) append(b []byte) []byte {
	w := pack.Begin(b)
	w.TextOpt("kind", p.Kind)
	w.TextOpt("name", p.Name)
	w.TextOpt("auth", p.Auth)
	return w.End()
}

func (p *Principal) read(r *pack.Reader) {
	for range r.Map() {
		switch string(r.Text()) {
		case "kind":
			p.Kind = string(r.Text())
		case "name":
			p.Name = string(r.Text())
		case "auth":
			p.Auth = string(r.Text())
		default:
			r.Fail()
		}
	}
}

func (m *Call) decodePlain(r pack.Reader) bool {
	got := *m
	for range r.Map() {
		switch string(r.Text()) {
		case "req":
			setBytes(&r, &got.Request)
		case "sig":
			setBytes(&r, &got.Signature)
		case "key":
			got.KeyID = string(r.Text())
		case "attempt":
			got.Attempt = r.Int()
		case "fence":
			got.Fence = r.Int()
		case "epoch":
			got.Epoch = r.Int()
		case "timeout":
			got.Timeout = r.Int()
		case "maxexec":
			got.MaxExecTime = r.Int()
		case "left":
			got.Left = r.Int()
		case "window":
			got.Window = r.Int()
		case "who":
			got.Principal.read(&r)
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}

func (m Ack) encodePlain() []byte {
	w := pack.Begin(make([]byte, 0, slack))
	w.Int("next", m.Next)
	w.IntOpt("window", m.Window)
	w.BoolOpt("end", m.End)
	return w.End()
}

func (m *Ack) decodePlain(r pack.Reader) bool {
	got := *m
	for range r.Map() {
		switch string(r.Text()) {
		case "next":
			got.Next = r.Int()
		case "window":
			got.Window = r.Int()
		case "end":
			got.End = r.Bool()
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}

func (m Accepted) encodePlain() []byte {
	w := pack.Begin(make([]byte, 0, slack))
	m.Started.writeOpt(&w)
	return w.End()
}

func (m *Accepted) decodePlain(r pack.Reader) bool {
	got := *m
	for range r.Map() {
		if string(r.Text()) != "started" {
			r.Fail()
		}
		readStarted(&r, &got.Started)
	}
	return take(&r, m, got)
}

func (m Started) encodePlain() []byte { return m.append(make([]byte, 0, slack)) }

func (m Started) append(b []byte) []byte {
	w := pack.Begin(b)
	w.Int("time", m.Time)
	return w.End()
}

// writeOpt writes STARTED as a part of another message, if it is there.
func (m *Started) writeOpt(w *pack.Message) {
	if m != nil {
		w.Key("started")
		w.B = m.append(w.B)
	}
}

func (m *Started) read(r *pack.Reader) {
	for range r.Map() {
		if string(r.Text()) != "time" {
			r.Fail()
		}
		m.Time = r.Int()
	}
}

func (m *Started) decodePlain(r pack.Reader) bool {
	got := *m
	got.read(&r)
	return take(&r, m, got)
}

// readStarted reads STARTED into a field that has none.
func readStarted(r *pack.Reader, field **Started) {
	if *field != nil {
		r.Fail()
		return
	}
	*field = new(Started)
	(*field).read(r)
}
