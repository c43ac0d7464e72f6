package admin

// policies writes the policies of some tenants into definitions.
func (e *exporter) policies(within map[string]bool, named bool) {
	e.array("policies", func(func(any)) {})
}
