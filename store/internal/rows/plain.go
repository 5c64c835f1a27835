package rows

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/pack"
)

// The rows that every job writes are written here, key by key, where there is nothing
// unusual about them; all others by reflection. Both write the same bytes.

// plainRow is a row that can be written here, behind b. It returns nil if it is unusual.
type plainRow interface{ appendPlain(b []byte) []byte }

// usual is how long a row is that is written here, unless a caller's values are long.
const usual = 512

// encodeIn is encode into memory that is used again. It returns that, with nothing else
// in it than the row.
func encodeIn[R plainRow](b []byte, row R) []byte {
	if plain := row.appendPlain(b[:0]); plain != nil {
		return plain
	}
	return encodeReflected(row)
}

func (r callRow) appendPlain(b []byte) []byte {
	if len(r.Labels) > 0 || r.Retry != nil {
		return nil
	}
	m := pack.Begin(b)
	m.Key("no")
	m.B = pack.AppendUint(m.B, r.No)
	m.Text("host", r.Host)
	m.Text("proc", r.Procedure)
	m.BytesOpt("queue", r.Queue)
	m.IntOpt("conc", int64(r.Concurrency))
	m.IntOpt("prio", int64(r.Priority))
	m.IntOpt("not_before", r.NotBefore)
	m.IntOpt("expires", r.Expires)
	m.IntOpt("offline_wait", r.OfflineWait)
	m.IntOpt("timeout", r.Timeout)
	m.IntOpt("max_exec", r.MaxExecTime)
	m.Key("by")
	m.B = appendPrincipal(m.B, r.Principal)
	m.TextOpt("batch", r.Batch)
	m.TextOpt("schedule", r.Schedule)
	m.IntOpt("fire", r.FireTime)
	m.TextOpt("retry_of", r.RetryOf)
	m.BoolOpt("dry_run", r.DryRun)
	m.TextOpt("trace", r.TraceParent)
	m.Int("submit", r.SubmitTime)
	m.Bytes("digest", r.Digest)
	return m.End()
}

func (r lifeRow) appendPlain(b []byte) []byte {
	if r.Cancel != nil || r.Stopping != nil || r.Failure != nil || r.Late != nil || len(r.Left) > 0 {
		return nil
	}
	m := pack.Begin(b)
	m.Text("state", string(r.State))
	m.TextOpt("reason", r.Reason)
	m.IntOpt("since", r.Since)
	m.TextOpt("unknown_of", string(r.UnknownOf))
	m.TextOpt("held", r.Held)
	m.TextOpt("started", string(r.Started))
	m.IntOpt("attempt", int64(r.Attempt))
	uintOpt(&m, "fence", r.Fence)
	if len(r.Attempts) > 0 {
		m.Key("attempts")
		m.B = pack.AppendArray(m.B, len(r.Attempts))
		for _, a := range r.Attempts {
			m.B = a.appendTo(m.B)
		}
	}
	m.IntOpt("wake", r.WakeAt)
	m.IntOpt("busy", int64(r.Busy))
	m.IntOpt("start", r.StartTime)
	m.IntOpt("end", r.EndTime)
	m.BoolOpt("value", r.HasValue)
	uintOpt(&m, "records", r.Records)
	uintOpt(&m, "stored", r.Stored)
	m.BoolOpt("full", r.Full)
	m.BoolOpt("outcome", r.Waits)
	m.BoolOpt("survivor", r.Survivor)
	return m.End()
}

func (a *attemptRow) appendTo(b []byte) []byte {
	m := pack.Begin(b)
	m.Int("n", int64(a.Number))
	uintOpt(&m, "base", a.Base)
	uintOpt(&m, "next", a.Next)
	uintOpt(&m, "fence", a.Fence)
	m.IntOpt("sent", a.Sent)
	m.IntOpt("started", a.Started)
	m.IntOpt("ended", a.Ended)
	m.TextOpt("outcome", a.Outcome)
	m.TextOpt("reason", a.Reason)
	return m.End()
}

func (r submissionRow) appendPlain(b []byte) []byte {
	m := pack.Begin(b)
	m.Bytes("request", r.Request)
	m.BytesOpt("sig", r.Signature)
	m.TextOpt("key", r.KeyID)
	return m.End()
}

func (r eventRow) appendPlain(b []byte) []byte {
	if r.Labels != nil {
		return nil
	}
	const fields = 11
	b = pack.AppendInt(pack.AppendArray(b, fields), r.At)
	b = pack.AppendBytes(pack.AppendString(b, string(r.Type)), r.Job)
	b = pack.AppendString(pack.AppendString(b, r.Host), r.Procedure)
	b = pack.AppendString(pack.AppendBytes(b, r.Queue), string(r.State))
	b = pack.AppendInt(pack.AppendString(b, r.Reason), int64(r.Attempt))
	if r.By == nil {
		return pack.AppendNil(pack.AppendNil(b))
	}
	return pack.AppendNil(appendPrincipal(b, *r.By))
}

func appendPrincipal(b []byte, p harp.Principal) []byte {
	m := pack.Begin(b)
	m.TextOpt("kind", p.Kind)
	m.TextOpt("name", p.Name)
	m.TextOpt("auth", p.Auth)
	return m.End()
}

// uintOpt writes a number other than 0.
func uintOpt(m *pack.Message, key string, n uint64) {
	if n != 0 {
		m.Key(key)
		m.B = pack.AppendUint(m.B, n)
	}
}
