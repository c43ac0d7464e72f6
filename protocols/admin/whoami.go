package admin

// getWhoami is GET /api/whoami.
func getWhoami(c *call) error {
	return one(c, struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{c.user.Name, listed(c.user.Tags)})
}
