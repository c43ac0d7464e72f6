package admin

import "net/http"

// Parameters belong to RabbitMQ's plugins, of which there are none here: the
// lists are empty, and setting one is refused.

// noRows is a listing that is always empty.
func noRows(c *call) error {
	return list(c, []struct{}{}, func(*struct{}) string { return "" }, func(r *struct{}) any { return r })
}

// nothing is a resource of such a listing.
func nothing(*call) error { return errNotFound }

// unsupported refuses a change.
func unsupported(what string) handler {
	return func(*call) error {
		return &refusal{http.StatusBadRequest, "not_implemented", what + " are not supported"}
	}
}

// globalParameter is one entry of GET /api/global-parameters.
type globalParameter struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

func (s *Server) globalParameters() []globalParameter {
	return []globalParameter{{"cluster_name", s.clusterName(s.id())}}
}

// listGlobalParameters is GET /api/global-parameters.
func listGlobalParameters(c *call) error {
	return list(c, c.s.globalParameters(), func(p *globalParameter) string { return p.Name }, func(p *globalParameter) any { return p })
}

// getClusterName is GET /api/cluster-name.
func getClusterName(c *call) error {
	return one(c, struct {
		Name string `json:"name"`
	}{c.s.clusterName(c.s.id())})
}
