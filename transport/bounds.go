package transport

// What anybody can send before it is known who that is.
const (
	// maxHello is the longest first message. Ours, with a key of ML-KEM, take 1.7 KiB.
	maxHello = 4 << 10

	// maxHandshake is how many bytes behind the first message are read before the peer is known: the longest chain, and what comes with it. A
	// dispatcher or agent that is dialled may send maxAnswered, as the names of all its authorities come as well.
	maxHandshake = maxChainSize + 8<<10
	maxAnswered  = 64 << 10

	// Whether certificates are good is known only after work has gone into them: their number, their bytes together, and the bits of a key of
	// RSA are looked at first. There is no curve above P-384.
	maxChain     = 4
	maxChainSize = 16 << 10
	maxRSA       = 4096

	// How many percent of the files that the process may have open may be in use while connections are kept that say nothing, while
	// one of a stranger is accepted, and while any is: the program needs the others itself.
	silentFiles    = 70
	strangersFiles = 80
	maxFiles       = 90

	// maxGreeted is how many addresses are remembered as good ones.
	maxGreeted = 1 << 16
)

// What a peer sends, or leaves unread, is paid for out of a [Budget] before it is held.
const (
	// maxReceivedBodies and maxReceivedFrames are how many bytes of long bodies and of frames
	// that were received and not taken a Budget has for all peers: two purses, as a frame may
	// wait behind a body. maxIdentityReceived is what it has of both for one identity. A session
	// that means well takes less: maxBodies and one body more, maxWaiting and a window.
	maxReceivedBodies   = 48 << 20
	maxReceivedFrames   = 16 << 20
	maxIdentityReceived = 16 << 20

	// maxBodies is how many bytes of long bodies a session has read and not handed on, but for a
	// single one that is longer, or was overtaken by as many; maxExchangeBodies is how many of
	// them are of one exchange: they may not be taken before one of another has come.
	maxBodies         = 8 << 20
	maxExchangeBodies = 1 << 20

	// maxComing is how many bytes of long bodies a session has let in that have not come, but for a single
	// one that is longer: their room is nobody else's, and over a slow line they take long. It is as
	// much as the window has.
	maxComing = mainWindow

	// maxBodyStreams is how many streams for long bodies each side opens, and so how many
	// bodies are on their way at a time. While all are in use, others wait.
	maxBodyStreams = 64

	// maxAnnounced is how many bodies of a session may have been announced and not let in. An honest sender
	// announces the next one of a stream when the one before is let in.
	maxAnnounced = 2 * maxBodyStreams

	// maxPiece is how many bytes of a stream may come at once: yamux takes room for them when they are
	// announced, and hands none of them on before the last.
	maxPiece = 16 << 10

	// maxAnswers is how many bytes of answers that are being made, or were not sent, a Budget
	// has for all peers, maxIdentityAnswers for one, and maxSessionAnswers for one session.
	maxAnswers         = 64 << 20
	maxIdentityAnswers = 32 << 20
	maxSessionAnswers  = 16 << 20

	// maxSessionCalls is how much of that is for calls to an agent: what it lets in at a time, and the next ones. More would not
	// come sooner, and over a slow line others would wait for its room.
	maxSessionCalls = 3 * maxComing

	// maxOpen is how many bytes a Budget has for the exchanges that all peers have opened,
	// maxIdentityOpen for those of one, and maxSessionOpen for those of one session.
	maxOpen         = 128 << 20
	maxIdentityOpen = 64 << 20
	maxSessionOpen  = 64 << 20

	// exchangePrice is what an exchange costs of that, beside what is left of its first body
	// when exchangeBody is taken off: a goroutine with its stack, and what it waits with.
	exchangePrice = 16 << 10
	exchangeBody  = 2 << 10

	// maxPrepaid is how many exchanges that are over a session keeps paid for, until its next
	// heartbeat: most begin as others end, and need not go to the budget for it.
	maxPrepaid = 16

	// defaultMaxExchanges is how many exchanges a session has under way; at twice as many, which
	// no honest opener begins, the acceptor ends it.
	defaultMaxExchanges = 4096

	// refusalRate and refusalBurst are how many exchanges a second, and at once, may be refused of a
	// session for want of room, for each that it may have under way: one that has as many of them as it may
	// and tries them again and again, with pauses that become longer, stays below that.
	refusalRate  = 0.2
	refusalBurst = 8

	// mainWindow is how many bytes of a stream the peer may send ahead of what was read: over a
	// line of 100 ms 10 MB/s of frames. A session whose frames are not taken costs that in yamux,
	// and its identity pays for it.
	mainWindow = 1 << 20

	// freeWaiting is how many bytes of frames may wait to be taken before they are paid for, in
	// steps, and maxWaiting at how many nothing more is read, as when they cannot be paid for: the
	// peer is held by yamux and TCP then. Hardly ever does more wait than the first.
	freeWaiting = 64 << 10
	waitingStep = 240 << 10
	maxWaiting  = freeWaiting + 4*waitingStep

	// maxAhead is how many bytes of long bodies a peer may send in a session before they are let in, once one of
	// them was and maxAheadOfAll has room for what yamux then needs: so most of them need no round trip.
	maxAhead      = 256 << 10
	maxAheadOfAll = 64 << 20

	// maxKept is how many bytes yamux may keep of all streams between their long bodies, until the next heartbeat:
	// what others need is made anew for each body.
	maxKept = 8 << 20

	// maxQueued is how many bytes of frames are queued to be written before senders wait, and
	// maxControlQueued those of the control exchange, which go before answers. What cannot wait,
	// as that an exchange is given up, ends the session at maxUnread: its peer sends and does
	// not read.
	maxQueued        = 256 << 10
	maxControlQueued = 1 << 20
	maxUnread        = 2 << 20

	// maxReason is the longest body of RESET, which says why.
	maxReason = 1
)

// Bound is one of the bounds on what peers can make this side hold.
type Bound struct {
	Name   string
	Value  int64
	Unit   string
	Reason string
}

// Use is how much of one of the bounds of all peers is in use.
type Use struct {
	Name  string // of the Bound
	Bytes int64
}

// Use returns how much of a budget is in use.
func (b *Budget) Use() []Use {
	return []Use{
		{answersOfAll, b.answers.used.Load()},
		{exchangesOfAll, b.open.used.Load()},
		{bodiesOfAll, b.bodies.used.Load()},
		{framesOfAll, b.frames.used.Load()},
		{aheadOfAll, b.ahead.used.Load()},
		{keptOfAll, b.kept.used.Load()},
	}
}

// The names of the bounds of all peers.
const (
	answersOfAll   = "answers of all peers"
	exchangesOfAll = "exchanges of all peers"
	bodiesOfAll    = "bodies of all peers"
	framesOfAll    = "frames of all peers"
	aheadOfAll     = "bodies ahead of all peers"
	keptOfAll      = "kept between bodies of all peers"
)

// Bounds returns the bounds on what peers can make this side hold, of every [Budget] and every
// session.
func Bounds() []Bound {
	const bytes, percent = "bytes", "% of files"
	return []Bound{
		{"first message", maxHello, bytes, "before it is the handshake's turn"},
		{"handshake", maxHandshake, bytes, "read after the first message, before the peer is known"},
		{"handshake of who is dialled", maxAnswered, bytes, "read before the peer is known"},
		{"certificates", maxChain, "certificates", "of a peer, verified"},
		{"bytes of certificates", maxChainSize, bytes, "of a peer, together"},
		{"key of RSA", maxRSA, "bits", "in a certificate; the longest curve is P-384"},
		{"files beside silent ones", silentFiles, percent, "in use, above which for each new connection the oldest is closed that says nothing"},
		{"files beside strangers", strangersFiles, percent, "in use, above which no connection is accepted from an address that has shown no good certificate"},
		{"files beside connections", maxFiles, percent, "in use, above which no connection is accepted"},
		{"good addresses", maxGreeted, "addresses", "remembered, because their handshakes do not wait behind those of others"},
		{answersOfAll, maxAnswers, bytes, "answers being made or not yet sent, and long calls on their way to agents"},
		{"answers of an identity", maxIdentityAnswers, bytes, "answers; one that reads none leaves room for others"},
		{"answers of a session", maxSessionAnswers, bytes, "answers; room for eight of the longest"},
		{"calls of a session", maxSessionCalls, bytes, "long calls on their way to an agent; others wait in the store"},
		{exchangesOfAll, maxOpen, bytes, "exchanges that peers have opened, with their first bodies"},
		{"exchanges of an identity", maxIdentityOpen, bytes, "exchanges; one that opens many leaves room for others"},
		{"opened by a session", maxSessionOpen, bytes, "exchanges that it has opened, with their first bodies"},
		{"price of an exchange", exchangePrice, bytes, "what each is counted with, besides its first body: a goroutine, its stack and more"},
		{"exchanges of a session", defaultMaxExchanges, "exchanges", "under way at a time"},
		{bodiesOfAll, maxReceivedBodies, bytes, "long bodies that were admitted and are not handled yet"},
		{framesOfAll, maxReceivedFrames, bytes, "short frames that were read and are not handled yet"},
		{"received of an identity", maxIdentityReceived, bytes, "bodies and frames not handled yet, and windows of sessions that do not read"},
		{"bodies of a session", maxBodies, bytes, "long bodies that were admitted and are not handled yet"},
		{"bodies of an exchange", maxExchangeBodies, bytes, "long bodies that were read and are not handled yet"},
		{"bodies that come", maxComing, bytes, "long bodies of a session that were admitted and are still on their way; over a slow line they occupy room for long"},
		{"bodies ahead", maxAhead, bytes, "of long bodies, which a session may send before they are admitted, once one was; saves round trips"},
		{aheadOfAll, maxAheadOfAll, bytes, "for sessions that may send bodies ahead, twice as much for each; to others each body takes a round trip more"},
		{keptOfAll, maxKept, bytes, "buffers of streams between two bodies, freed at the next heartbeat"},
		{"frames of a session", maxWaiting, bytes, "frames that were read and are not handled yet"},
		{"window of a stream", mainWindow, bytes, "sent before it is read; allows 10 MB/s over a line with 100 ms"},
		{"streams of a side", maxBodyStreams, "streams", "one for each long body on its way"},
		{"announced by a session", maxAnnounced, "bodies", "long ones that are not admitted yet"},
		{"piece of a stream", maxPiece, bytes, "written at once, held until the last of it has come"},
		{"queued to be written", maxQueued, bytes, "frames of a session whose senders do not wait"},
		{"control queued to be written", maxControlQueued, bytes, "frames of the control exchange, which are sent before answers"},
		{"unread by a peer", maxUnread, bytes, "of what cannot wait; then the session is closed"},
	}
}
