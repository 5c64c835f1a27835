package main

import (
	"bytes"
	"debug/buildinfo"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

const module = "github.com/harpcaller/harp"

// bill writes what a program is made of, as CycloneDX JSON: the modules that the linker says
// are in it, and Go's standard library.
func (r *release) bill(p program) error {
	info, err := buildinfo.Read(bytes.NewReader(p.code))
	if err != nil {
		return err
	}
	name := "pkg:golang/" + module + "@v" + r.version
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			Type: cyclonedx.ComponentTypeApplication, BOMRef: name, Name: module, Version: "v" + r.version, PackageURL: name,
			Properties: &[]cyclonedx.Property{{Name: "go:platform", Value: p.String()}},
		},
	}
	components := []cyclonedx.Component{library("std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, library(m.Path, m.Version, m.Sum))
	}
	bom.Components = &components
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: name, Dependencies: &refs}}
	var buf bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&buf, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.write("harp-"+r.version+"-"+p.os+"-"+p.arch+".cdx.json", buf.Bytes())
}

// library is a module; sum is its checksum as go.sum has it.
func library(path, version, sum string) cyclonedx.Component {
	name := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: name, Name: path, Version: version, PackageURL: name}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}
