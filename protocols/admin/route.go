package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// resource is one row of the table of routes: a path below /api, who may use
// it, and what to do for each method. A segment in braces stands for a name;
// {vhost} must be a tenant that the user may use (see access).
type resource struct {
	path    string
	need    level
	methods methods
}

type methods map[string]handler

// handler answers one request, or returns an error that says what to answer.
type handler func(*call) error

// table is what resources become: their paths taken apart.
type table []entry

type entry struct {
	resource
	segments []string
	allow    string
}

func newTable(list []resource) table {
	t := make(table, 0, len(list))
	for _, r := range list {
		e := entry{resource: r, segments: strings.Split(r.path, "/")}
		allow := []string{http.MethodOptions}
		for m := range r.methods {
			if allow = append(allow, m); m == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
		}
		slices.Sort(allow)
		e.allow = strings.Join(allow, ", ")
		t = append(t, e)
	}
	return t
}

// find returns the first entry that matches a path, and the names in it.
func (t table) find(path []string) (*entry, []string) {
	for i := range t {
		e := &t[i]
		if len(e.segments) != len(path) {
			continue
		}
		var args []string
		match := true
		for j, s := range e.segments {
			if s[0] == '{' {
				args = append(args, path[j])
			} else if s != path[j] {
				match = false
				break
			}
		}
		if match {
			return e, args
		}
	}
	return nil, nil
}

// vhost returns the tenant that the path names, if it does.
func (e *entry) vhost(args []string) (string, bool) {
	n := 0
	for _, s := range e.segments {
		if s == "{vhost}" {
			return args[n], true
		}
		if s[0] == '{' {
			n++
		}
	}
	return "", false
}

// maxSegments is more than any path has.
const maxSegments = 16

// split takes the path below /api/ apart. That is done by hand on the path as
// it was sent, since a name may hold an encoded slash.
func split(u *url.URL) ([]string, bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/api/")
	if !ok || strings.Count(rest, "/") >= maxSegments {
		return nil, false
	}
	path := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	for i := range path {
		var err error
		if path[i], err = url.PathUnescape(path[i]); err != nil {
			return nil, false
		}
	}
	return path, true
}

// api answers everything below /api/.
func (s *Server) api(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: w, r: r}
	if err := s.dispatch(c); err != nil {
		c.refuse(err)
	}
}

func (s *Server) dispatch(c *call) error {
	path, ok := split(c.r.URL)
	if !ok {
		return errNotFound
	}
	e, args := s.table.find(path)
	if e == nil {
		return errNotFound
	}
	method := c.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c.w.Header().Set("Allow", e.allow)
	if method == http.MethodOptions {
		c.empty(http.StatusOK)
		return nil
	}
	fn, ok := e.methods[method]
	if !ok {
		return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "only " + e.allow + " work here"}
	}
	c.w.Header().Del("Allow")
	c.args = args
	if err := c.login(); err != nil {
		return err
	}
	if err := c.allowed(e.need); err != nil {
		return err
	}
	if vhost, ok := e.vhost(args); ok {
		if err := c.enter(vhost); err != nil {
			return err
		}
	}
	return fn(c)
}
