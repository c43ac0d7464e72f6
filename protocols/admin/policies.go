package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// policyInfo is one policy, or operator policy.
type policyInfo struct {
	VHost      string         `json:"vhost,omitempty"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int            `json:"priority"`
}

func (s *Server) policyInfo(p *kernel.Policy) policyInfo {
	return policyInfo{p.Tenant, p.Name, p.Pattern, string(p.ApplyTo), s.cfg.Mapper.Values(p.Definition), p.Priority}
}

// policyBody is what a client may say of a policy.
type policyBody struct {
	Pattern    *string `json:"pattern"`
	ApplyTo    string  `json:"apply-to"`
	Definition *values `json:"definition"`
	Priority   whole   `json:"priority"`
}

// policy reads a policy and checks it.
func (s *Server) policy(vhost string, operator bool, name string, b *policyBody) (kernel.Policy, error) {
	p := kernel.Policy{Tenant: vhost, Name: name, Operator: operator, ApplyTo: kernel.PolicyTarget(b.ApplyTo), Priority: int(b.Priority)}
	if err := missing("pattern", b.Pattern == nil, "definition", b.Definition == nil); err != nil {
		return p, err
	}
	if b.ApplyTo == "" {
		p.ApplyTo = kernel.PolicyAll
	}
	p.Pattern = *b.Pattern
	var err error
	if p.Definition, err = s.cfg.Mapper.Arguments(*b.Definition); err != nil {
		return p, err
	}
	if err := broker.CheckPolicy(&p); err != nil {
		return p, badRequest("Validation failed\n\n" + err.Error() + "\n")
	}
	return p, nil
}

// listPolicies answers with the policies of the tenants that the user sees, or
// of the one that the path names.
func listPolicies(operator bool) handler {
	return func(c *call) error {
		vhosts := c.args
		if len(vhosts) == 0 {
			vhosts = c.visible()
		}
		rows := slices.DeleteFunc(c.s.node.Policies(), func(p kernel.Policy) bool {
			return p.Operator != operator || !slices.Contains(vhosts, p.Tenant)
		})
		return list(c, rows, func(p *kernel.Policy) string { return p.Name }, func(p *kernel.Policy) any { return c.s.policyInfo(p) })
	}
}

// getPolicy is GET /api/policies/{vhost}/{name}.
func getPolicy(operator bool) handler {
	return func(c *call) error {
		p, err := c.s.node.Policy(c.args[0], operator, c.args[1])
		if err != nil {
			return errNotFound
		}
		return one(c, c.s.policyInfo(&p))
	}
}

// putPolicy is PUT /api/policies/{vhost}/{name}.
func putPolicy(operator bool) handler {
	return func(c *call) error {
		var body policyBody
		if err := c.read(&body); err != nil {
			return err
		}
		p, err := c.s.policy(c.args[0], operator, c.args[1], &body)
		if err != nil {
			return err
		}
		_, absent := c.s.node.Policy(p.Tenant, operator, p.Name)
		if err := c.s.node.PutPolicy(c.r.Context(), p); err != nil {
			return err
		}
		return c.put(absent != nil)
	}
}

// deletePolicy is DELETE /api/policies/{vhost}/{name}.
func deletePolicy(operator bool) handler {
	return func(c *call) error {
		err := c.s.node.DropPolicy(c.r.Context(), c.args[0], operator, c.args[1])
		if err != nil && kernel.CodeOf(err) == kernel.CodeNotFound {
			return errNotFound
		}
		if err != nil {
			return err
		}
		return c.gone()
	}
}

// operatorPolicies is the component of the parameters that are operator policies
// in definitions: so RabbitMQ exports them.
const operatorPolicies = "operator_policy"

// operatorPolicy is one of them.
type operatorPolicy struct {
	VHost     string              `json:"vhost,omitempty"`
	Component string              `json:"component"`
	Name      string              `json:"name"`
	Value     operatorPolicyValue `json:"value"`
}

type operatorPolicyValue struct {
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int            `json:"priority"`
}

// policies writes the policies of some tenants into definitions, operator
// policies among the parameters.
func (e *exporter) policies(within map[string]bool, named bool) {
	var own, operator []policyInfo
	for _, p := range e.c.s.node.Policies() {
		if !within[p.Tenant] {
			continue
		}
		info := e.c.s.policyInfo(&p)
		if !named {
			info.VHost = ""
		}
		if p.Operator {
			operator = append(operator, info)
		} else {
			own = append(own, info)
		}
	}
	e.array("parameters", func(add func(any)) {
		for _, p := range operator {
			add(operatorPolicy{p.VHost, operatorPolicies, p.Name, operatorPolicyValue{p.Pattern, p.ApplyTo, p.Definition, p.Priority}})
		}
	})
	e.array("policies", func(add func(any)) {
		for _, p := range own {
			add(p)
		}
	})
}

// policyImport is a policy in definitions.
type policyImport struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	policyBody
}

// parameterImport is a parameter in definitions, which can be an operator policy.
type parameterImport struct {
	Name      string     `json:"name"`
	VHost     string     `json:"vhost"`
	Component string     `json:"component"`
	Value     policyBody `json:"value"`
}

// preparePolicies checks the policies.
func (i *importer) preparePolicies() error {
	add := func(vhost string, operator bool, name string, b *policyBody) error {
		p, err := i.c.s.policy(vhost, operator, name, b)
		if err != nil {
			return about("policy", name, err)
		}
		i.policies = append(i.policies, p)
		return nil
	}
	for n := range i.d.Policies {
		p := &i.d.Policies[n]
		if err := add(p.VHost, false, p.Name, &p.policyBody); err != nil {
			return err
		}
	}
	var others []string
	for _, p := range i.d.Parameters {
		if p.Component != operatorPolicies && len(others) < 20 {
			others = append(others, fmt.Sprintf("%.60s of component %.60s", p.Name, p.Component))
		}
	}
	if len(others) > 0 {
		return badRequest("parameters are not supported: " + strings.Join(others, ", "))
	}
	for n := range i.d.Parameters {
		p := &i.d.Parameters[n]
		if err := add(p.VHost, true, p.Name, &p.Value); err != nil {
			return err
		}
	}
	return nil
}

// applyPolicies puts them. The queues are yet to come.
func (i *importer) applyPolicies(ctx context.Context) error {
	for _, p := range i.policies {
		if err := i.c.s.node.PutPolicy(ctx, p); err != nil {
			return about("policy", p.Name, err)
		}
	}
	return nil
}
