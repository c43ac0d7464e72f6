package retain

import (
	"strings"
)

// Filter is a topic filter, taken apart. It is for one goroutine.
type Filter struct {
	levels []string
	// hidden: it begins with a wildcard, so that names beginning with $ do not
	// match (MQTT 5.0, 4.7.2).
	hidden bool
	first  string // no name before this one matches
	target []byte // of seek
}

// NewFilter takes apart a filter that kernel.CheckFilter accepts.
func NewFilter(filter string) *Filter {
	f := &Filter{levels: strings.Split(filter, "/")}
	literal := 0
	for literal < len(f.levels) && f.levels[literal] != "+" && f.levels[literal] != "#" {
		literal++
	}
	f.hidden = literal == 0
	f.first = strings.Join(f.levels[:literal], "/")
	return f
}

// verdict is what Filter.look says about a name.
type verdict uint8

const (
	matches verdict = iota
	next            // it does not; the name after it may
	seek            // it does not, and none before f.target does
	ended           // it does not, and none after it does
)

// look compares a name with the filter.
func (f *Filter) look(name string) verdict {
	if f.hidden && name != "" && name[0] == '$' {
		f.target = append(f.target[:0], '$'+1)
		return seek
	}
	pos := 0 // where in the name the level begins
	for _, level := range f.levels {
		if level == "#" {
			return matches // what is before it, too
		}
		if pos > len(name) {
			return next
		}
		end := len(name)
		if i := strings.IndexByte(name[pos:], '/'); i >= 0 {
			end = pos + i
		}
		if word := name[pos:end]; level != "+" && word != level {
			if word < level {
				f.target = append(append(f.target[:0], name[:pos]...), level...)
				return seek
			}
			return f.leave(name, pos)
		}
		pos = end + 1
	}
	if pos <= len(name) {
		return f.leave(name, pos)
	}
	return matches
}

// leave goes on after all names that are below the one that ends before pos.
func (f *Filter) leave(name string, pos int) verdict {
	if pos == 0 {
		return ended
	}
	f.target = append(append(f.target[:0], name[:pos-1]...), 0)
	return seek
}

// compare orders names by their levels: what is below a name comes right after
// it, because / sorts before any other byte.
func compare(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			return rank(x) - rank(y)
		}
	}
	return len(a) - len(b)
}

func rank(c byte) int {
	if c == '/' {
		return -1
	}
	return int(c)
}

// Before reports whether a name comes before another one in the order of Page.
func Before(a, b string) bool { return compare(a, b) < 0 }
