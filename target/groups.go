package target

// Groups are the groups that targets may use. Each is read, parsed and compiled once, for all targets that are compiled
// with them; who changes a group takes new Groups. They are not safe for concurrent use.
type Groups struct {
	read     func(name string) (text string, err error)
	parsed   map[string]*Expr
	compiled map[string]*compiledGroup // nil while one is being compiled
}

// compiledGroup is what a group stands for.
type compiledGroup struct {
	root   *clause
	height height
	size   size     // without that of the groups it uses
	cost   int      // with it, as often as it uses them
	uses   []string // these
}

// NewGroups returns groups whose texts read returns by their names; nil: there are none.
func NewGroups(read func(name string) (text string, err error)) *Groups {
	return &Groups{read: read, parsed: map[string]*Expr{}, compiled: map[string]*compiledGroup{}}
}

// Expr returns the target of a group. Errors: what read returned, ErrNoGroup if there are none, a [SyntaxError].
func (g *Groups) Expr(name string) (*Expr, error) {
	if e := g.parsed[name]; e != nil {
		return e, nil
	}
	if g.read == nil {
		return nil, ErrNoGroup
	}
	text, err := g.read(name)
	if err != nil {
		return nil, err
	}
	e, err := Parse(text)
	if err == nil {
		g.parsed[name] = e
	}
	return e, err
}
